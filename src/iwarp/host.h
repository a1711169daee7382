// What the protocol core asks of whoever runs it. The device implements this with its memory table
// and queues, the tests with plain vectors.
#pragma once

#include <cstdint>
#include <vector>

#include "iwarp/types.h"
#include "wire/terminate.h"

namespace weft::iwarp {

struct ReceiveRequest {
  std::uint64_t wr_id = 0;
  std::vector<LocalSlice> slices{};  // capacity is kept from request to request
};

struct PeerAccess {
  std::uint32_t stag = 0;
  RemoteRight right = RemoteRight::write;
  std::uint64_t bytes = 0;
  bool last = true;
};

// Finds registered memory of this side.
class LocalMemory {
 public:
  virtual ~LocalMemory() = default;

  // Checks one access by lkey and returns where the bytes are. The address stays valid until the
  // region is deregistered; see Host::remote_memory() for a connection.
  virtual Memory local_memory(const LocalSlice& slice, bool for_writing) = 0;
};

// All calls come from inside a call to Connection, under whatever lock covers it. An implementation
// must not call back into the connection.
class Host : public LocalMemory {
 public:
  // Checks one access and says where the bytes are. The address stays valid until the next call
  // into the connection, or until Connection::forget() was told that the memory goes.
  virtual Memory remote_memory(std::uint32_t stag, std::uint64_t offset, std::uint64_t length_bytes,
                               RemoteRight right) = 0;

  // Takes the next posted receive; false where there is none.
  virtual bool next_receive(ReceiveRequest& request) = 0;

  // The peer has done that, with memory of that name: part of a message, or its last part. For
  // counting.
  virtual void note_peer_access(const PeerAccess& /*access*/) {}

  // A Send with Invalidate asks to withdraw remote access (RFC 5040 §5.3). False: not allowed.
  virtual bool invalidate(std::uint32_t stag) = 0;

  // The next request of this side alone, in the order of posting, has come to its turn: what was
  // posted before it has been built, and with a fence answered. Anything but success ends the
  // stream, as the status of that request. One that is flushed before its turn never comes here.
  virtual Status carry_out_local() { return Status::local_operation; }

  virtual void complete_send(const SendCompletion& completion) = 0;
  virtual void complete_receive(const ReceiveCompletion& completion) = 0;

  // The peer's first FPDU arrived: the stream now runs in both directions.
  virtual void on_peer_ready() = 0;
  // The stream ended; comes once, after the completions it caused.
  virtual void on_end(EndReason reason) = 0;
};

}  // namespace weft::iwarp
