// The interface through which the protocol core reaches memory and queues. The device implements it
// with its memory table and queues, the tests with plain vectors.
#pragma once

#include <cstdint>
#include <vector>

#include "iwarp/types.h"
#include "wire/terminate.h"

namespace weft::iwarp {

struct ReceiveRequest {
  std::uint64_t wr_id = 0;
  // Where the peer names queues (PeerFeatures::names_queues): the shared receive queue that the
  // receive is to come from, set by the caller of Host::next_receive().
  std::uint32_t queue = 0;
  std::vector<LocalSlice> slices{};  // capacity is kept from request to request
};

// One access of the peer to our memory, for counting.
struct PeerAccess {
  std::uint32_t stag = 0;
  RemoteRight right = RemoteRight::write;
  std::uint64_t bytes = 0;
  bool last = true;  // of its message, which may be reported in several parts
};

// Finds registered memory of this side.
class LocalMemory {
 public:
  virtual ~LocalMemory() = default;

  // Checks one access by lkey and returns the address of the bytes. The address stays valid until
  // the region is deregistered; see Host::remote_memory() for a connection.
  virtual Memory local_memory(const LocalSlice& slice, bool for_writing) = 0;
};

// All calls are made from inside a call of Connection, under the lock that covers it. An
// implementation must not call back into the connection.
class Host : public LocalMemory {
 public:
  // Checks one access and returns the address of the bytes. The address must stay valid until the
  // next call into the connection, and of data to be sent until TCP has taken them or
  // Connection::forget() was called for the memory.
  virtual Memory remote_memory(std::uint32_t stag, std::uint64_t offset, std::uint64_t length_bytes,
                               RemoteRight right) = 0;

  // Takes the next posted receive out of its queue; false where there is none.
  virtual bool next_receive(ReceiveRequest& request) = 0;

  // The requests of the peer from here on belong to the shared receive queue with this number,
  // whose protection domain decides what they may access. False: there is no such queue, which ends
  // the stream.
  virtual bool name_receive_queue(std::uint32_t /*number*/) { return false; }

  // The peer has made an access that remote_memory() had allowed.
  virtual void note_peer_access(const PeerAccess& /*access*/) {}

  // A Send with Invalidate withdraws remote access to the STag (RFC 5040 §5.3). False: not allowed,
  // which ends the stream.
  virtual bool invalidate(std::uint32_t stag) = 0;

  // Carries out the next local request (is_local()) in the order of posting: everything posted
  // before it has been built and, with a fence, answered. Any status but success completes the
  // request and ends the stream. Not called for requests that are flushed.
  virtual Status carry_out_local() { return Status::local_operation; }

  virtual void complete_send(const SendCompletion& completion) = 0;
  virtual void complete_receive(const ReceiveCompletion& completion) = 0;

  // The peer's first FPDU has arrived: the stream now runs in both directions.
  virtual void on_peer_ready() = 0;
  // The stream has ended. Called once, after the completions that the end causes.
  virtual void on_end(EndReason reason) = 0;
};

}  // namespace weft::iwarp
