#include "device/queue_pair/queue_pair_parts.h"

#include <array>
#include <cstdio>

#include "base/log.h"

namespace weft::device {
namespace {

// In force until ibv_modify_qp(3) sets others, which an iWARP queue pair need not do: there the
// rights of the region are the limit.
constexpr unsigned all_remote_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

QueuePairParts::QueuePairParts(Context& opened, ibv_qp& handle, const ibv_qp_init_attr& wanted)
    : context(opened),
      qp(handle),
      limits{.send_requests = wanted.cap.max_send_wr,
             .send_slices = wanted.cap.max_send_sge,
             .receive_slices = wanted.cap.max_recv_sge,
             .inline_bytes = wanted.cap.max_inline_data},
      completions(handle, wanted.cap.max_send_wr),
      receives(wanted.cap, wanted.srq ? SharedReceiveQueue::of(wanted.srq) : nullptr),
      memory(opened.memory(),
             handle.pd ? ProtectionDomain::of(handle.pd)->number : MemoryAccess::no_domain,
             handle.qp_num, attributes) {
  attributes.cap = wanted.cap;
  attributes.qp_access_flags = all_remote_access & opened.device().grantable_access();
  attributes.port_num = 1;
  DeviceFaults* const faults = opened.device().faults();
  const auto& trace = opened.device().trace();
  if (!faults && !trace) return;
  Observation& begun = begin_observation();
  begun.faults = faults;
  if (faults && faults->names(faults::Point::completion)) {
    begun.late = std::make_unique<LateCompletions>(*faults, end);
  }
  if (trace) begun.watch = RequestWatch(std::make_unique<QueuePairTrace>(trace, handle));
}

Observation& QueuePairParts::begin_observation() {
  if (!observation) observation = std::make_unique<Observation>();
  completions.set_observation(observation.get());
  return *observation;
}

void QueuePairParts::end_observation() {
  if (!observation || observation->needed()) return;
  completions.set_observation(nullptr);
  observation.reset();
}

// After ibv_destroy_qp(3) the event would name freed memory.
void QueuePairParts::raise(ibv_event_type type) {
  if (destroyed) return;
  ibv_async_event event{};
  event.element.qp = &qp;
  event.event_type = type;
  context.raise(event);
}

bool QueuePairParts::note_carrier(const CarrierNote& now) {
  carrier = now;
  shared.offered = {};  // sent, or never to be
  const Settings& settings = context.device().settings();
  const auto reason = static_cast<int>(now.reason.size());
  std::array<char, 32> object{};
  std::snprintf(object.data(), object.size(), "queue pair 0x%06x", qp.qp_num);
  // A setting that demands shared memory is for measurements and tests: a silent change to TCP
  // would falsify them.
  if (settings.same_host == SameHost::required && now.name == "tcp") {
    log_format(LogLevel::error, object.data(),
               "%s: the connection fails, because WEFT_SAME_HOST=require forbids TCP, and %.*s",
               object.data(), reason, now.reason.data());
    return false;
  }
  if (settings.verbose) {
    log_format(LogLevel::info, object.data(), "%s: %s%s%.*s", object.data(),
               now.name == "tcp"    ? "TCP"
               : now.reason.empty() ? "same host, without TCP"
                                    : "same host, without TCP, payload through shared memory",
               now.reason.empty() ? "" : ", because ", reason, now.reason.data());
  }
  return true;
}

// InfiniBand raises the event for the first message in RTR. A passive program may wait for it
// before it goes to RTS.
void QueuePairParts::note_arrival() {
  if (qp.state != IBV_QPS_RTR || arrived) return;
  arrived = true;
  raise(IBV_EVENT_COMM_EST);
}

void QueuePairParts::complete(const iwarp::SendCompletion& completion) {
  // A local request that is flushed before its turn will not be carried out any more.
  if (is_local(completion.operation) && completion.status == iwarp::Status::flushed) {
    memory.remove_oldest();
  }
  completions.add_send(completion);
}

void QueuePairParts::complete_receive(const iwarp::ReceiveCompletion& completion) {
  note_arrival();
  if (observation && completion.status == iwarp::Status::success) [[unlikely]]
    observation->watch.placed(QueuePairTrace::Kind::message);
  if (!receives.domain()) [[likely]] {
    completions.add_receive(completion, receives.slots());
    return;
  }
  // The program may have destroyed the queue after the receive was taken out of it. Then it expects
  // no completion any more.
  SharedReceiveQueue* const queue = receives.domain()->find(completion.queue);
  if (queue) completions.add_receive(completion, queue->slots(), &queue->extended()->completions);
}

bool QueuePairParts::take_receive(iwarp::ReceiveRequest& request, bool waits) {
  if (!receives.take(request, waits)) return false;
  if (receives.domain()) [[unlikely]] {
    const SharedReceiveQueue* queue = receives.domain()->find(request.queue);
    if (queue) memory.set_receive_domain(queue->domain_number());
  }
  return true;
}

bool QueuePairParts::name_receive_queue(std::uint32_t number) {
  const SharedReceiveQueue* queue = receives.domain() ? receives.domain()->find(number) : nullptr;
  if (queue) {
    memory.set_remote_domain(queue->domain_number());
    receives.set_named(number);
    return true;
  }
  std::array<char, 32> object{};
  std::snprintf(object.data(), object.size(), "queue pair 0x%06x", qp.qp_num);
  log_format(LogLevel::warning, object.data(),
             "%s: the peer names the shared receive queue 0x%06x, which this process does not have "
             "in the XRC domain of the queue pair; queues of other processes cannot be reached",
             object.data(), number);
  return false;
}

void QueuePairParts::forget_receive_queue(SharedReceiveQueue& queue) {
  completions.forget(queue.slots());
  if (receives.named() == queue.extended()->number) {
    memory.set_remote_domain(MemoryAccess::no_domain);
  }
}

// Through complete(), because local requests among them are still in the list of MemoryAccess.
void QueuePairParts::flush_waiting() {
  waiting.release([this](const iwarp::WorkRequest& request) {
    complete(
        {.wr_id = request.wr_id, .operation = request.operation, .status = iwarp::Status::flushed});
  });
}

// take_own(): the receives of a shared queue stay for other queue pairs.
void QueuePairParts::flush_receives() {
  iwarp::ReceiveRequest request;
  while (receives.take_own(request)) {
    complete_receive({.wr_id = request.wr_id, .status = iwarp::Status::flushed});
  }
}

}  // namespace weft::device
