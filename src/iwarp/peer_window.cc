#include "iwarp/peer_window.h"

#include "iwarp/hold.h"

namespace weft::iwarp {
namespace {

// What a message takes up in the peer's hold. The payload of a Write is placed at once, only its
// immediate is held.
std::uint64_t cost_of(Operation operation, std::uint32_t length_bytes) {
  const bool payload_held = operation != Operation::write_immediate;
  return Hold::message_cost_bytes + (payload_held ? std::uint64_t{length_bytes} : 0);
}

}  // namespace

PeerWindow::Admission PeerWindow::admit(Operation operation, std::uint32_t length_bytes,
                                        std::uint32_t msn) {
  // Cleared for every request: closed() is about the last one asked for.
  closed_ = false;
  // Writes, reads and atomics are placed or answered at once and never reach the hold.
  if (!takes_receive(operation)) return Admission::open;
  const std::uint64_t cost = cost_of(operation, length_bytes);
  if (!grant_needed(cost)) {
    // What is not proven may still be in the hold.
    const std::uint64_t maybe_held = sent_cost_ - proven_cost_;
    closed_ = maybe_held + cost > options_.limit_bytes;
    return closed_ ? Admission::needs_proof : Admission::open;
  }
  // Asked once: build() comes here again whenever something else could be sent.
  if (grant_ == Grant::none) {
    grant_ = Grant::asked;
    asked_msn_ = msn;
    control_.put(wire::ControlWord::waiting, msn);
  }
  closed_ = grant_ != Grant::given;
  return closed_ ? Admission::needs_grant : Admission::open;
}

// The peer grants a message only once it has placed everything before it, so a grant is a proof as
// well: its hold is empty.
void PeerWindow::granted(std::uint32_t msn) {
  // A peer must not open the window by a grant that was not asked for.
  if (grant_ != Grant::asked || msn != asked_msn_) return;
  grant_ = Grant::given;
  proven_cost_ = sent_cost_;
}

// A granted message goes straight into its receive and takes up nothing of the hold.
void PeerWindow::charge(Operation operation, std::uint32_t length_bytes) {
  if (!takes_receive(operation)) return;
  const std::uint64_t cost = cost_of(operation, length_bytes);
  if (!grant_needed(cost)) sent_cost_ += cost;
  // The grant was for this message alone.
  grant_ = Grant::none;
}

}  // namespace weft::iwarp
