// The check early-access: watches a few bytes of the memory of some receives, Reads and atomics
// from their post until their completion is polled, as debug registers and time allow.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "check/inside.h"
#include "check/pace.h"
#include "check/report.h"
#include "check/requests.h"
#include "check/stacks.h"
#include "check/traps.h"

namespace weft::check {

// A request, by the account of its queue pair or shared receive queue. The wr_id of several may be
// the same.
struct WatchedRequest {
  const void* queue = nullptr;
  bool receives = false;
  std::uint64_t wr_id = 0;

  friend bool operator==(const WatchedRequest&, const WatchedRequest&) = default;
};

// Thread-safe.
class EarlyAccesses {
 public:
  // A request that is about to be posted will write to these ranges: nothing is watched there that
  // was posted before, because programs that post one buffer many times do not look at it.
  void posting(const MemoryRanges& ranges);
  // Whether a request that is posted now is to be watched. False most of the time.
  [[nodiscard]] bool wants_more();
  // `name`: "Receive 0x1 on queue pair 0x2a0001". `qp`: null for a shared receive queue.
  void watch(const WatchedRequest& request, const ibv_qp* qp, StackId posted, std::string name,
             const MemoryRanges& ranges);
  // Its completion was polled, or it was not posted; all requests of a queue are dropped; memory is
  // not registered any more.
  void ended(const WatchedRequest& request);
  void ended_all(const void* queue);
  void ended_in(const MemoryRange& memory);
  // Whether take_findings() may return some.
  [[nodiscard]] bool has_found() const { return has_found_; }
  // What was found since the last call.
  [[nodiscard]] std::vector<Finding> take_findings(Stacks& stacks);
  // Ends what is watched, where the program has replaced the handler, and says so.
  void release();
  // Ends it for good: at the exit.
  void stop();

  // Around fork(2). The child watches nothing of its parent.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child();

 private:
  // One debug register. The handler fills `trap` and then sets `found`, once for each arming.
  struct Slot final : Watchpoint::Taker {
    explicit Slot(std::atomic<bool>& noted) : watchpoint(*this), has_found(noted) {}
    void take(Trap& at) override;

    Watchpoint watchpoint;
    std::atomic<bool>& has_found;
    WatchedRequest request;
    const ibv_qp* qp = nullptr;
    StackId posted = 0;
    std::string name;
    MemoryRange bytes;
    std::uint64_t armed_ns = 0;
    std::atomic<bool> taken{false};
    std::atomic<bool> found{false};
    Trap trap;
  };

  // Ends the slots for which `is_over` returns true, and keeps what they have found.
  template <typename IsOver>
  void end_if(IsOver is_over);
  void end(Slot& slot);
  [[nodiscard]] Slot* free_slot(std::uint64_t now_ns);
  [[nodiscard]] MemoryRange choose(const MemoryRanges& ranges);

  struct Found {
    std::string name;
    std::uint64_t address = 0;
    StackId posted = 0;
    Trap trap;
  };

  InsideMutex mutex_;
  std::atomic<bool> has_found_{false};
  std::array<Slot, 2> slots_{Slot(has_found_), Slot(has_found_)};
  std::atomic<int> armed_{0};
  std::vector<Found> found_;
  Pace pace_{32, 2'000'000};  // an arming takes tens of microseconds for each thread
  std::uint64_t chosen_ = 0;
  bool stopped_ = false;
};

}  // namespace weft::check
