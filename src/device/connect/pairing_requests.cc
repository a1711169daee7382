#include "device/connect/pairing_requests.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/after_fork.h"
#include "device/addresses.h"
#include "device/connect/pairing.h"
#include "device/device.h"
#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::device {

using wire::Hello;
using wire::HelloAnswer;

void ParkedRequest::on_deadline() {
  owner_.answer(*this);
}

PairingRequests::PairingRequests(Device& device) : device_(device), dial_turns_(device.engine()) {}

// A request from an expected address is answered at once, any other one late and always alike: so
// an unknown host cannot search for numbers, neither by answers nor by their time.
void PairingRequests::handle(const std::shared_ptr<InboundHandshake>& inbound) {
  const auto hello = Hello::parse(inbound->handshake().peer_private_data());
  if (!hello) {
    ++device_.refusals().malformed;
    inbound->reject({});
    return;
  }
  // The answer to an unknown version does not depend on the numbers, so it may be sent to
  // strangers.
  if (!hello->has_known_version()) return answer_request(device_, inbound, *hello);
  const bool stranger = !expects(*inbound);
  const bool known = !stranger && !is_other_users(*inbound);
  // Its only connection waits here, because a refusal would make both ends dial again.
  if (known && is_early(*hello)) return park(inbound, *hello, known);
  if (known) return answer_request(device_, inbound, *hello);
  ++(stranger ? device_.refusals().strangers : device_.refusals().other_user);
  park(inbound, *hello, known);
}

// Programs for InfiniBand guarantee no order: the queue pair that is named here may still be on its
// way to RTR.
bool PairingRequests::is_early(const Hello& hello) const {
  const auto queue_pair = device_.find_queue_pair(hello.destination_qpn);
  return queue_pair && queue_pair->awaits_pairing();
}

void PairingRequests::park(const std::shared_ptr<InboundHandshake>& inbound, const Hello& hello,
                           bool known) {
  // A peer may be a little earlier than its partner here, which gets its address vector in the next
  // moments.
  const std::uint64_t due_ns = sys::now_ns() + limits::stranger_answer_ns;
  const auto parked = std::make_shared<ParkedRequest>(*this, inbound, hello, due_ns, known);
  const std::size_t most = device_.refused_connections().most();
  std::shared_ptr<ParkedRequest> oldest;
  {
    const std::lock_guard lock(mutex_);
    if (parked_.size() >= most) {
      oldest = std::move(parked_.front());
      parked_.pop_front();
    }
    parked_.push_back(parked);
  }
  device_.engine().call_at(due_ns, parked);
  // The queue pair may have looked for the request just before it was parked.
  if (known && !is_early(hello)) device_.engine().call_at(sys::now_ns(), parked);
  // Bounded: the oldest one is answered before its time.
  if (!oldest) return;
  ++device_.refusals().answered_early;
  reject_stranger(*oldest);
}

// When the time has come, or earlier, when a queue pair has learnt of the peer.
void PairingRequests::answer(ParkedRequest& parked) {
  const bool known = parked.known || (expects(*parked.inbound) && !is_other_users(*parked.inbound));
  const bool early = parked.known && is_early(parked.hello);
  if ((!known || early) && sys::now_ns() < parked.due_ns) return;
  std::shared_ptr<ParkedRequest> kept;
  {
    const std::lock_guard lock(mutex_);
    const auto place = std::ranges::find(parked_, &parked, &std::shared_ptr<ParkedRequest>::get);
    if (place == parked_.end()) return;  // answered already
    // `parked` is destroyed with its entry, so the entry is kept until the answer is sent.
    kept = std::move(*place);
    parked_.erase(place);
  }
  known ? answer_request(device_, parked.inbound, parked.hello) : reject_stranger(parked);
}

// Gives the same answer for every number. A peer whose queue pair here has no address vector yet
// looks like a stranger as well: it must ask again, and that must not count as a retry. Once no
// queue pair can get an address vector any more, the answer is final, so that the peer's work fails
// in time.
void PairingRequests::reject_stranger(ParkedRequest& parked) const {
  const Hello reply{.answer = expectant_ > 0 ? HelloAnswer::not_yet : HelloAnswer::refused,
                    .source_qpn = parked.hello.destination_qpn,
                    .destination_qpn = parked.hello.source_qpn,
                    .generation = parked.hello.generation};
  std::array<std::byte, Hello::bytes> bytes;
  reply.emit(bytes);
  parked.inbound->reject(bytes);
}

void PairingRequests::expect(std::uint32_t number, const ibv_gid& gid) {
  const std::lock_guard lock(mutex_);
  // Several queue pairs may have the same peer address.
  ++expected_[key_of(gid)].pairings;
  for (const auto& parked : parked_) {
    // By the engine, because this is called with locks of the queue pair and its pairing.
    if (parked->hello.destination_qpn == number) device_.engine().call_at(sys::now_ns(), parked);
  }
}

void PairingRequests::expect_no_more(const ibv_gid& gid) {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(key_of(gid));
  if (found != expected_.end() && --found->second.pairings == 0) expected_.erase(found);
}

bool PairingRequests::heard_since(const ibv_gid& gid, std::uint64_t time_ns) {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(key_of(gid));
  return found != expected_.end() && found->second.heard_ns >= time_ns;
}

bool PairingRequests::expects(const InboundHandshake& inbound) {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(key_of(gid_of(inbound.ends().remote)));
  if (found == expected_.end()) return false;
  found->second.heard_ns = sys::now_ns();
  return true;
}

bool PairingRequests::is_other_users(const InboundHandshake& inbound) {
  return !inbound.is_from_pair() && is_other_users(inbound.ends());
}

// Root is not refused: it has access to this process anyway. Where the kernel does not name the
// owner, the numbers and the PSNs decide.
bool PairingRequests::is_other_users(const TcpEnds& ends) {
  if (device_.settings().other_users) return false;
  const auto owner = owners_.of_peer(ends);
  return owner && *owner != 0 && *owner != ::geteuid();
}

PairingRequests::Gid PairingRequests::key_of(const ibv_gid& gid) {
  Gid key{};
  std::copy_n(gid.raw, key.size(), key.begin());
  return key;
}

void PairingRequests::abandon_after_fork() {
  owners_.abandon_after_fork();
  walk_after_fork(mutex_, [this] {
    for (const auto& parked : parked_) parked->inbound->abandon_after_fork();
  });
}

}  // namespace weft::device
