#include "device/queue_pair/xrc_domain.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "device/context.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/shared_receive_queue.h"

namespace weft::device {

// --- The domain ----------------------------------------------------------------------------------

SharedReceiveQueue* XrcDomain::find(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(number);
  return found == queues_.end() ? nullptr : found->second;
}

void XrcDomain::add(SharedReceiveQueue& queue, const std::shared_ptr<XrcDomain>& self) {
  queue.extended()->completions.attach(self);
  const std::lock_guard lock(mutex_);
  queues_.emplace(queue.extended()->number, &queue);
}

// A thread that has found the queue holds the lock of a queue pair, so each lock is taken once.
void XrcDomain::remove(SharedReceiveQueue& queue) {
  CompletionQueue& completions = queue.extended()->completions;
  bool shared = false;
  {
    const std::lock_guard lock(mutex_);
    queues_.erase(queue.extended()->number);
    shared = std::ranges::any_of(queues_, [&](const auto& entry) {
      return &entry.second->extended()->completions == &completions;
    });
  }
  for (const auto& queue_pair : queue_pairs()) queue_pair->forget_receive_queue(queue);
  completions.forget(queue.slots());
  if (!shared) completions.detach(this);
}

void XrcDomain::add(const std::shared_ptr<QueuePair>& queue_pair) {
  const std::lock_guard lock(mutex_);
  queue_pairs_.push_back(queue_pair);
}

void XrcDomain::remove(const QueuePair& queue_pair) {
  const std::lock_guard lock(mutex_);
  std::erase_if(queue_pairs_, [&](const auto& entry) { return entry.get() == &queue_pair; });
}

std::shared_ptr<QueuePair> XrcDomain::find_queue_pair(std::uint32_t number) {
  for (const auto& queue_pair : queue_pairs()) {
    if (queue_pair->verbs()->qp_num == number) return queue_pair;
  }
  return nullptr;
}

// A copy, so that the locks of the queue pairs are taken without this one.
std::vector<std::shared_ptr<QueuePair>> XrcDomain::queue_pairs() {
  const std::lock_guard lock(mutex_);
  return queue_pairs_;
}

void XrcDomain::drive_inline() {
  for (const auto& queue_pair : queue_pairs()) queue_pair->drive_inline();
}

void XrcDomain::expect_event(bool solicited_only) {
  for (const auto& queue_pair : queue_pairs()) queue_pair->expect_event(solicited_only);
}

void XrcDomain::begin_look() {
  for (const auto& queue_pair : queue_pairs()) queue_pair->begin_look();
}

void XrcDomain::end_look() {
  for (const auto& queue_pair : queue_pairs()) queue_pair->end_look();
}

std::shared_ptr<XrcDomain> XrcDomains::open(int file, int flags) {
  struct stat status {};
  if (fstat(file, &status) != 0) return nullptr;
  const std::lock_guard lock(mutex_);
  std::erase_if(domains_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = domains_[{status.st_dev, status.st_ino}];
  auto domain = known.lock();
  if (domain && (flags & O_EXCL) != 0) errno = EINVAL;
  if (!domain && (flags & O_CREAT) == 0) errno = EAGAIN;
  if (domain ? (flags & O_EXCL) != 0 : (flags & O_CREAT) == 0) return nullptr;
  if (!domain) known = domain = std::make_shared<XrcDomain>();
  return domain;
}

// --- The functions of verbs.h --------------------------------------------------------------------

namespace {

std::nullptr_t fail_null(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

int refusal_of_xrc(const Device& device) {
  if (device.is_roce()) return 0;
  log_format(LogLevel::warning, "weft0",
             "an iWARP device has no extended connections (XRC); a program that needs them runs "
             "with `weft run --personality roce` or `ib`");
  return EOPNOTSUPP;
}

// ibv_open_xrcd(3): both attributes are required, and a domain without a file is always new.
ibv_xrcd* open_xrc_domain(ibv_context* verbs, ibv_xrcd_init_attr* attributes) {
  constexpr std::uint32_t required = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  Context& context = *Context::of(verbs);
  if (const int refused = refusal_of_xrc(context.device())) return fail_null(refused);
  if (attributes->comp_mask != required) return fail_null(EINVAL);
  if ((attributes->oflags & ~(O_CREAT | O_EXCL)) != 0) return fail_null(EINVAL);
  std::shared_ptr<XrcDomain> domain;
  if (attributes->fd == -1) {
    if ((attributes->oflags & O_CREAT) == 0) return fail_null(EINVAL);
    domain = std::make_shared<XrcDomain>();
  } else {
    domain = context.device().xrc_domains().open(attributes->fd, attributes->oflags);
    if (!domain) return nullptr;
  }
  auto made = std::make_unique<XrcHandle>();
  made->xrcd.context = verbs;
  made->domain = std::move(domain);
  ++context.objects;
  return &made.release()->xrcd;
}

int close_xrc_domain(ibv_xrcd* xrcd) {
  XrcHandle* handle = XrcHandle::of(xrcd);
  if (handle->users > 0) {
    errno = EBUSY;
    return EBUSY;
  }
  --Context::of(xrcd->context)->objects;
  delete handle;
  return 0;
}

ibv_srq* create_extended_shared_queue(ibv_context* verbs, ibv_srq_init_attr_ex* attributes) {
  constexpr std::uint32_t required =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if (attributes->srq_type == IBV_SRQT_TM) {
    log_format(LogLevel::warning, "weft0", "the device has no tag matching (IBV_SRQT_TM)");
    return fail_null(EOPNOTSUPP);
  }
  if (attributes->srq_type != IBV_SRQT_XRC || attributes->comp_mask != required ||
      !attributes->pd || attributes->pd->context != verbs || !attributes->cq ||
      attributes->cq->context != verbs || !attributes->xrcd || attributes->xrcd->context != verbs) {
    return fail_null(EINVAL);
  }
  Context& context = *Context::of(verbs);
  Device& device = context.device();
  int failed = device.fault_of(faults::Point::create_shared_receive_queue);
  if (failed == 0) failed = SharedReceiveQueue::check(device, attributes->attr);
  if (failed != 0) return fail_null(failed);
  attributes->attr.max_sge = std::max(attributes->attr.max_sge, 1U);
  const ibv_srq_init_attr plain{.srq_context = attributes->srq_context, .attr = attributes->attr};
  auto made = std::make_unique<SharedReceiveQueue>(context, attributes->pd, plain);
  // From the numbers of queue pairs, which differ between the processes of a host: a number that
  // belongs to another process finds nothing here.
  const std::uint32_t number = device.take_queue_pair_number();
  if (number == 0) return nullptr;
  XrcHandle& handle = *XrcHandle::of(attributes->xrcd);
  made->extend(
      {.number = number, .completions = *CompletionQueue::of(attributes->cq), .handle = handle});
  handle.domain->add(*made, handle.domain);
  ++handle.users;
  ++ProtectionDomain::of(attributes->pd)->users;
  ++context.objects;
  return made.release()->verbs();
}

void leave_domain(SharedReceiveQueue& queue) {
  const SharedReceiveQueue::Extended& extended = *queue.extended();
  extended.handle.domain->remove(queue);
  --extended.handle.users;
  Context::of(queue.verbs()->context)->device().give_back_queue_pair_number(extended.number);
}

int number_of_shared_queue(ibv_srq* srq, std::uint32_t* number) {
  const auto& extended = SharedReceiveQueue::of(srq)->extended();
  if (!extended) {
    errno = EINVAL;  // only queues of type XRC are named by a number
    return EINVAL;
  }
  *number = extended->number;
  return 0;
}

ibv_qp* open_queue_pair(ibv_context* verbs, ibv_qp_open_attr* attributes) {
  constexpr std::uint32_t required =
      IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  constexpr std::uint32_t known = required | IBV_QP_OPEN_ATTR_CONTEXT;
  const std::uint32_t given = attributes->comp_mask;
  if ((given & required) != required || (given & ~known) != 0 || !attributes->xrcd ||
      attributes->xrcd->context != verbs || attributes->qp_type != IBV_QPT_XRC_RECV) {
    return fail_null(EINVAL);
  }
  const auto found = XrcHandle::of(attributes->xrcd)->domain->find_queue_pair(attributes->qp_num);
  if (!found) return fail_null(EINVAL);
  const bool named = (given & IBV_QP_OPEN_ATTR_CONTEXT) != 0;
  return found->open_handle(*Context::of(verbs), named ? attributes->qp_context : nullptr);
}

}  // namespace weft::device
