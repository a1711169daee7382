// Limits what is under way to a Weft peer that holds messages until a receive is posted.
//
// RFC 5041 §7.1 knows no message without a posted receive: the stream ends. A Weft peer holds such
// messages of queue 0 instead, up to a number of bytes that its hello names (see hold.h and
// receiver_not_ready.h). So that the hold is never overrun, everything that may find no receive has
// to fit there:
//
// - A message costs its payload and Hold::message_cost_bytes. It counts from when it is built until
//   a proof (see proofs.h) shows that the peer has placed it.
// - A message that does not fit at the moment waits for such a proof.
// - A message that never fits, or any message where no proof can be had, waits for a *grant*: this
//   side sends the control word `waiting` with the message's MSN, the peer answers `granted` when
//   it has a receive for that message and has emptied its hold.
//
// Towards other peers there is no limit. RDMA Writes, reads and atomics need no receive and are
// never limited, but requests leave in the order of posting and wait behind a message that waits.
#pragma once

#include <cstdint>

#include "iwarp/control_outbox.h"
#include "iwarp/types.h"

namespace weft::iwarp {

class PeerWindow {
 public:
  struct Options {
    std::uint32_t limit_bytes = 0;  // what the peer can hold (PeerFeatures); 0: no limit
    bool provable = true;           // the peer takes reads, so that there can be proofs
  };

  enum class Admission : std::uint8_t { open, needs_proof, needs_grant };

  // `control` carries the requests for grants; it must outlive this object.
  PeerWindow(const Options& options, ControlOutbox& control)
      : options_(options), control_(control) {}

  [[nodiscard]] bool limited() const { return options_.limit_bytes != 0; }

  // Whether a request may start now. `msn`: the next one of queue 0. Asks for a grant where one is
  // needed, once for each message. Only where limited().
  [[nodiscard]] Admission admit(Operation operation, std::uint32_t length_bytes, std::uint32_t msn);
  // The last admit() did not open: the next request waits for the peer.
  [[nodiscard]] bool closed() const { return closed_; }
  // The request that was not admitted has asked for a grant that has not come.
  [[nodiscard]] bool awaits_grant() const { return grant_ == Grant::asked; }

  // The peer has a receive for the message with this MSN. Ignored unless it was asked for.
  void granted(std::uint32_t msn);
  // The request that was admitted has been built. Only where limited().
  void charge(Operation operation, std::uint32_t length_bytes);

  // The cost of all messages built so far that counts towards the limit. A request remembers it as
  // it was behind its last message, and calls prove() with it when it is proven.
  [[nodiscard]] std::uint64_t sent_cost() const { return sent_cost_; }
  void prove(std::uint64_t sent_cost) {
    if (sent_cost > proven_cost_) proven_cost_ = sent_cost;
  }

 private:
  enum class Grant : std::uint8_t { none, asked, given };

  [[nodiscard]] bool grant_needed(std::uint64_t cost) const {
    return !options_.provable || cost > options_.limit_bytes;
  }

  Options options_;
  ControlOutbox& control_;
  bool closed_ = false;
  Grant grant_ = Grant::none;    // for the request that admit() was last asked about
  std::uint32_t asked_msn_ = 0;  // of that request
  std::uint64_t sent_cost_ = 0;
  std::uint64_t proven_cost_ = 0;
};

}  // namespace weft::iwarp
