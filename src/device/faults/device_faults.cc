#include "device/faults/device_faults.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "device/context.h"
#include "device/device.h"
#include "device/system.h"
#include "faults/names.h"

namespace weft::device {
namespace {

// The rules are read without the headers of verbs; these are the ends of their tables.
static_assert(IBV_WC_LOC_LEN_ERR == 1 && IBV_WC_REM_ACCESS_ERR == 10 && IBV_WC_GENERAL_ERR == 21);
static_assert(IBV_EVENT_DEVICE_FATAL == 8 && IBV_EVENT_GID_CHANGE == 18);

// At this time.
faults::Occurrence occurrence_of(const ConnectionEnd& end, std::uint32_t queue_pair,
                                 std::uint64_t bytes = 0) {
  faults::Occurrence found{
      .now_ns = sys::now_ns(), .queue_pair = queue_pair, .side = end.side, .bytes = bytes};
  std::copy_n(end.peer.raw, found.peer.size(), found.peer.begin());
  return found;
}

}  // namespace

DeviceFaults::DeviceFaults(Device& device, faults::Rules rules, std::uint64_t seed, bool verbose)
    : device_(device),
      plan_(std::move(rules), seed, sys::now_ns(), program_invocation_short_name, verbose),
      events_(plan_.events()) {
  const auto& capture = device.capture();
  const auto& trace = device.trace();
  plan_.describe_to([capture, trace](const std::string& fault) {
    capture->comment(fault);
    if (trace) trace->mark("fault", fault);
  });
}

void DeviceFaults::context_opened() {
  const std::lock_guard lock(mutex_);
  // Times of events count from the first context that a program opens.
  if (started_ns_ != 0) return;
  started_ns_ = sys::now_ns();
  for (const auto& event : events_) {
    device_.engine().call_at(started_ns_ + event.after_ns, shared_from_this());
  }
}

// names() comes first, here and below: without a rule at this point the clock is not read, and no
// lock is taken.
int DeviceFaults::call(faults::Point point) {
  if (!plan_.names(point)) return 0;
  const auto action = plan_.at(point, {.now_ns = sys::now_ns()});
  return action ? action->value : 0;
}

int DeviceFaults::call(faults::Point point, const ibv_qp& qp) {
  if (!plan_.names(point)) return 0;
  const auto action = plan_.at(point, {.now_ns = sys::now_ns(), .queue_pair = qp.qp_num});
  return action ? action->value : 0;
}

std::optional<faults::Action> DeviceFaults::request(faults::Point point, const ibv_qp& qp,
                                                    const ConnectionEnd& end, std::uint64_t bytes) {
  if (!plan_.names(point)) return std::nullopt;
  return plan_.at(point, occurrence_of(end, qp.qp_num, bytes));
}

std::unique_ptr<StreamFaults> DeviceFaults::stream(std::uint32_t queue_pair,
                                                   const ConnectionEnd& end) {
  if (!plan_.names_streams()) return nullptr;
  const faults::Occurrence begin = occurrence_of(end, queue_pair);
  auto made = std::make_unique<StreamFaults>(plan_, begin, plan_.schedule(begin));
  const std::lock_guard lock(mutex_);
  // These actions belong to a connection that did not exist yet when their rules applied.
  const auto pending = pending_.find(queue_pair);
  if (pending == pending_.end()) return made;
  for (const auto& action : pending->second) made->add(action);
  pending_.erase(pending);
  return made;
}

void DeviceFaults::add_pending(std::uint32_t queue_pair, const faults::Action& action) {
  const std::lock_guard lock(mutex_);
  pending_[queue_pair].push_back(action);
}

// The descriptor stays open as long as this object: closing it would end the peer's wait.
void DeviceFaults::keep_silent(sys::Descriptor connection) {
  const std::lock_guard lock(mutex_);
  silent_.push_back(std::move(connection));
}

std::optional<faults::Action> DeviceFaults::connecting(faults::Point point,
                                                       const ConnectionEnd& end,
                                                       std::uint32_t queue_pair) {
  if (!plan_.names(point)) return std::nullopt;
  return plan_.at(point, occurrence_of(end, queue_pair));
}

void DeviceFaults::on_ready(std::uint32_t /*epoll_events*/) {}

void DeviceFaults::on_deadline() {
  std::vector<faults::Plan::Event> due;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t open_ns = sys::now_ns() - started_ns_;
    // One call may find several events due, and another none, because each event has a call of its
    // own.
    const auto later =
        std::stable_partition(events_.begin(), events_.end(),
                              [open_ns](const auto& event) { return event.after_ns <= open_ns; });
    due.assign(events_.begin(), later);
    events_.erase(events_.begin(), later);
  }
  std::ranges::stable_sort(due, {}, &faults::Plan::Event::after_ns);
  // The events are raised without the lock of this object: Device::raise() takes the device's lock.
  for (const auto& each : due) {
    plan_.happened(each);
    if (each.type == IBV_EVENT_PORT_ERR) port_down_ = true;
    if (each.type == IBV_EVENT_PORT_ACTIVE) port_down_ = false;
    ibv_async_event event{};
    event.event_type = static_cast<ibv_event_type>(each.type);
    event.element.port_num = 1;
    device_.raise(event);
  }
}

}  // namespace weft::device
