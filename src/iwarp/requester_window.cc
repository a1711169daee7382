// Towards a peer that holds Sends until a receive comes, and said how much it can hold: what may
// find no receive must fit there, and what never fits is sent when a receive is granted.
#include "iwarp/hold.h"
#include "iwarp/requester.h"

namespace weft::iwarp {
namespace {

std::uint64_t cost(Operation operation, std::uint32_t length_bytes) {
  const bool payload_held = operation != Operation::write_immediate;
  return Hold::message_cost_bytes + (payload_held ? std::uint64_t{length_bytes} : 0);
}

}  // namespace

// Where no proof can be had, nothing is known to have left the hold.
bool Requester::needs_grant(const Entry& entry) const {
  return options_.wire_ord == 0 ||
         cost(entry.request.operation, entry.length_bytes) > options_.window_bytes;
}

bool Requester::window_open(const Entry& entry) {
  if (!takes_receive(entry.request.operation)) return true;
  if (needs_grant(entry)) return grant_given();
  const std::uint64_t held = sent_cost_ - proven_cost_;
  if (held + cost(entry.request.operation, entry.length_bytes) <= options_.window_bytes) {
    return true;
  }
  proof_wanted_ = next_;
  return false;
}

bool Requester::grant_given() {
  if (grant_ == Grant::none) {
    grant_ = Grant::asked;
    control_.put(wire::ControlWord::waiting, send_msn_);
  }
  return grant_ == Grant::given;
}

// A grant also says that all before it has left the hold.
void Requester::granted(std::uint32_t msn) {
  if (grant_ != Grant::asked || msn != send_msn_) return;
  grant_ = Grant::given;
  proven_cost_ = sent_cost_;
}

void Requester::charge(const Entry& entry) {
  if (!takes_receive(entry.request.operation)) return;
  if (!needs_grant(entry)) sent_cost_ += cost(entry.request.operation, entry.length_bytes);
  grant_ = Grant::none;
}

}  // namespace weft::iwarp
