// Event moderation, ibv_modify_cq(3): one event for several completions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "device/engine.h"

namespace weft::device {

// Holds an event back until `count` completions are in the queue or the first of them has waited
// for the period, whichever comes first. Guarded by the lock of its completion queue.
class EventModeration {
 public:
  // 0 disables a limit. Both 0, or a count of 1: each completion raises its event at once.
  void set(std::uint16_t count, std::uint16_t period_us);
  [[nodiscard]] bool active() const { return count_ > 1 || (count_ == 0 && period_ns_ > 0); }

  // Adds a completion that an event is due for. True: raise the event now.
  bool add(std::uint64_t now_ns);
  // The number of completions that wait for their event.
  [[nodiscard]] std::uint32_t held() const { return held_; }
  // The event was raised, for any reason.
  void notified() { held_ = 0; }

  // The latest time for the event. 0 if nothing is held back or no period is set.
  [[nodiscard]] std::uint64_t deadline_ns() const {
    return held_ > 0 && period_ns_ > 0 ? held_since_ns_ + period_ns_ : 0;
  }

 private:
  std::uint32_t count_ = 0;
  std::uint64_t period_ns_ = 0;
  std::uint32_t held_ = 0;
  std::uint64_t held_since_ns_ = 0;
};

// Calls back when a held event has waited for the period, unless the queue has been destroyed.
class ModerationClock final : public Pollable {
 public:
  explicit ModerationClock(std::function<void()> tick) : tick_(std::move(tick)) {}
  // Disables the callback; waits for a call in progress.
  void stop();
  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override;

 private:
  std::mutex mutex_;
  std::function<void()> tick_;
};

}  // namespace weft::device
