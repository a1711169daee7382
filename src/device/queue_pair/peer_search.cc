#include "device/queue_pair/peer_search.h"

#include <utility>

#include "device/connect/pairing_requests.h"
#include "device/connect/slots.h"

namespace weft::device {

// A new queue pair may get any address vector. While there is such a one, requests of unknown peers
// are answered "not yet" instead of "refused": see PairingRequests::reject_stranger().
PeerSearch::PeerSearch(QueuePairParts& parts) : parts_(parts), device_(parts.context.device()) {
  count_expectant(true);
}

PeerSearch::~PeerSearch() {
  count_expectant(false);
}

void PeerSearch::count_expectant(bool expectant) {
  // UD has no peer to search for. The flag makes the count right however often a state is entered.
  if (parts_.qp.qp_type == IBV_QPT_UD || expectant == expectant_) return;
  expectant_ = expectant;
  device_.pairing_requests().add_expectant(expectant ? 1 : -1);
}

void PeerSearch::restart(QueuePairLock& /*lock*/) {
  count_expectant(true);
}

void PeerSearch::asked_early(QueuePairLock& /*lock*/) {
  asked_early_ = true;
}

void PeerSearch::ready_to_send(QueuePairLock& /*lock*/) {
  if (pairing_) pairing_->ready_to_send(parts_.attributes.sq_psn);
}

void PeerSearch::begin(const std::weak_ptr<QueuePair>& self, QueuePairLock& /*lock*/) {
  const ibv_qp_attr& attributes = parts_.attributes;
  count_expectant(false);
  // rdma_init_qp_attr(3) has given this number: the program walks its own queue pair through the
  // states, and the stream comes from rdma_cm.
  awaits_manager_ = attributes.dest_qp_num == slot::stream_of_cm;
  if (awaits_manager_) return;
  Pairing::Plan plan;
  // Cannot fail here: QueuePair::check_attributes() has made the same plan before the step.
  if (Pairing::make_plan(device_, parts_.qp.qp_num, attributes, plan) != 0) return;
  // A new STag for each pairing, so that a late peer of an earlier one cannot write control words.
  plan.control_stag = parts_.context.memory().random_control_stag();
  plan.unreliable = parts_.is_unreliable();
  if (parts_.qp.qp_type == IBV_QPT_XRC_SEND) plan.extended = wire::Hello::extended_sender;
  if (parts_.qp.qp_type == IBV_QPT_XRC_RECV) plan.extended = wire::Hello::extended_receiver;
  // Not make_shared: the engine keeps weak references in its list of deadlines for long, and these
  // would keep the memory.
  pairing_.reset(new Pairing(device_, self, plan));
  pairing_->start(std::exchange(asked_early_, false));
}

// The pairing is cancelled before it is released, because a dial that is under way still holds it.
// Its retries would be lost with it.
void PeerSearch::end(QueuePairLock& /*lock*/) {
  count_expectant(false);
  awaits_manager_ = false;
  peer_left_ = false;
  asked_early_ = false;
  if (!pairing_) return;
  pairing_->cancel();
  parts_.completions.counters().connection_retries += pairing_->retries();
  pairing_.reset();
}

void PeerSearch::lost(bool again, QueuePairLock& /*lock*/) {
  if (pairing_) pairing_->lost(again);
}

void PeerSearch::peer_left(QueuePairLock& /*lock*/) {
  peer_left_ = true;
}

// The clock starts with the first request that waits: a queue pair that only reached RTR never
// times out, as on InfiniBand.
bool PeerSearch::await(QueuePairLock& /*lock*/) {
  if (parts_.waiting.empty()) return true;
  if (peer_left_) return false;
  if (!pairing_) return true;
  if (pairing_->over()) return false;
  const std::uint64_t least_ns = device_.settings().min_retry_time_ns;
  // Unreliable queue pairs have no timeout and no retry count.
  const ibv_qp_attr& attributes = parts_.attributes;
  pairing_->work_waits(parts_.is_unreliable()
                           ? least_ns
                           : retry_time_ns(attributes.timeout, attributes.retry_cnt, least_ns));
  return true;
}

void PeerSearch::abandon_after_fork() {
  if (pairing_) pairing_->abandon_after_fork();
}

}  // namespace weft::device
