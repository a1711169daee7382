// What rules of faults do to the completions of one queue pair: some can be polled later, and some
// find their queue full. A queue pair without such rules has none of these.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <optional>

#include "device/completion/completion_queue.h"
#include "device/faults/device_faults.h"

namespace weft::device {

// Used with the lock of the queue pair held.
class LateCompletions {
 public:
  // `faults` and `end` must outlive this object.
  LateCompletions(DeviceFaults& faults, const ConnectionEnd& end) : faults_(faults), end_(end) {}

  // A request or receive of `qp` has completed. Completions stay in their order.
  void add(const ibv_qp& qp, const Completed& completed, std::uint64_t now_ns);

  struct Due {
    Completed completed;
    bool overruns = false;  // it is to find its queue full
    std::uint64_t due_ns = 0;
  };
  // The next one that is due.
  [[nodiscard]] std::optional<Due> take(std::uint64_t now_ns);
  // When take() is to be called again; nothing where that has been returned before.
  [[nodiscard]] std::optional<std::uint64_t> new_alarm_ns();
  [[nodiscard]] bool empty() const { return late_.empty(); }
  // Throws them away, and gives their places back.
  void drop();
  // The same for those whose places are in `slots`.
  void forget(const QueueSlots& slots);

 private:
  DeviceFaults& faults_;
  const ConnectionEnd& end_;
  std::deque<Due> late_;
  std::uint64_t alarm_ns_ = 0;  // 0: none
};

}  // namespace weft::device
