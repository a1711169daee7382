#include "device/queue_pair/shared_receive_queue.h"

#include <algorithm>
#include <cerrno>

#include "device/context.h"
#include "device/limits.h"
#include "device/queue_pair/xrc_domain.h"

namespace weft::device {

int SharedReceiveQueue::check(Device& device, const ibv_srq_attr& wanted) {
  Adapter& adapter = device.adapter();
  const bool fits = wanted.max_wr >= 1 &&
                    adapter.grants(Capability::shared_receives, wanted.max_wr) &&
                    adapter.grants(Capability::slices, wanted.max_sge);
  return fits ? 0 : EINVAL;
}

SharedReceiveQueue::SharedReceiveQueue(Context& context, ibv_pd* domain,
                                       const ibv_srq_init_attr& attributes)
    : context_(context),
      counted_(context.device().adapter(), Capability::shared_receive_queues),
      ring_(attributes.attr.max_wr, attributes.attr.max_sge),
      max_slices_(attributes.attr.max_sge) {
  ring_.slots().set_shared();
  srq_.context = context.verbs();
  srq_.srq_context = attributes.srq_context;
  srq_.pd = domain;
  // Members of the public struct ibv_srq. libibverbs initializes them as well; this device does not
  // use them.
  pthread_mutex_init(&srq_.mutex, nullptr);
  pthread_cond_init(&srq_.cond, nullptr);
}

SharedReceiveQueue::~SharedReceiveQueue() {
  if (extended_) leave_domain(*this);
  pthread_cond_destroy(&srq_.cond);
  pthread_mutex_destroy(&srq_.mutex);
}

std::uint32_t SharedReceiveQueue::domain_number() const {
  return ProtectionDomain::of(srq_.pd)->number;
}

int SharedReceiveQueue::post(ibv_recv_wr* request, ibv_recv_wr** bad) {
  int failed = 0;
  std::vector<std::weak_ptr<ReceiveWaiter>> waiters;
  DeviceFaults* faults = context_.device().faults();
  {
    const std::lock_guard lock(mutex_);
    for (; request && failed == 0; request = request->next) {
      failed = faults ? faults->call(faults::Point::post_receive) : 0;
      if (failed == 0) failed = ring_.post(*request);
      if (failed != 0) *bad = request;
    }
    // Taken out with the same lock that posted the receives: a queue pair that finds none after
    // this is in the new list.
    waiters.swap(waiters_);
  }
  // A waiter that gets nothing this time registers again. Without our lock, because a queue pair's
  // lock comes before it in the lock order.
  for (const auto& one : waiters) {
    if (const auto waiter = one.lock()) waiter->shared_receives_posted();
  }
  return failed;
}

void SharedReceiveQueue::add_waiter(const std::weak_ptr<ReceiveWaiter>& added) {
  // Compares owners, which needs no lock() and works for queue pairs that are destroyed meanwhile.
  const auto same = [&added](const auto& one) {
    return !one.owner_before(added) && !added.owner_before(one);
  };
  if (std::none_of(waiters_.begin(), waiters_.end(), same)) waiters_.push_back(added);
}

bool SharedReceiveQueue::take(iwarp::ReceiveRequest& request,
                              const std::weak_ptr<ReceiveWaiter>* waiter) {
  bool below = false;
  {
    const std::lock_guard lock(mutex_);
    // Registered under the lock of the queue, so no post can come between the look and the
    // registration.
    if (!ring_.take(request)) {
      if (waiter) add_waiter(*waiter);
      return false;
    }
    // Counts posted receives that no message has taken yet.
    below = limit_ > 0 && ring_.size() < limit_;
    if (below) limit_ = 0;  // fires once: ibv_modify_srq(3)
  }
  if (below) {
    ibv_async_event event{};
    event.element.srq = &srq_;
    event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
    context_.raise(event);
  }
  return true;
}

int SharedReceiveQueue::modify(const ibv_srq_attr& attributes, int mask) {
  const std::lock_guard lock(mutex_);
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  // Before the limit, which is checked against the new size where a call changes both.
  if (mask & IBV_SRQ_MAX_WR) {
    if (attributes.max_wr == 0 ||
        !context_.device().adapter().grants(Capability::shared_receives, attributes.max_wr)) {
      return EINVAL;
    }
    if (const int failed = ring_.resize(attributes.max_wr)) return failed;
  }
  if (mask & IBV_SRQ_LIMIT) {
    if (attributes.srq_limit > ring_.capacity()) return EINVAL;
    limit_ = attributes.srq_limit;
  }
  return 0;
}

void SharedReceiveQueue::query(ibv_srq_attr& attributes) {
  const std::lock_guard lock(mutex_);
  attributes.max_wr = ring_.capacity();
  attributes.max_sge = max_slices_;
  attributes.srq_limit = limit_;
}

}  // namespace weft::device
