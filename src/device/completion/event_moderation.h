// Fewer events than completions: ibv_modify_cq(3).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "device/engine.h"

namespace weft::device {

// Holds an event back until so many completions are there, or the first of them has waited so
// long, whichever comes first. Under the lock of its completion queue.
class EventModeration {
 public:
  // Zero: this one sets no limit. Both zero, or a count of one: each completion is told of at once.
  void set(std::uint16_t count, std::uint16_t period_us);
  [[nodiscard]] bool active() const { return count_ > 1 || (count_ == 0 && period_ns_ > 0); }

  // One more completion that an event is due for. True: raise it now.
  bool add(std::uint64_t now_ns);
  // How many completions wait for their event.
  [[nodiscard]] std::uint32_t held() const { return held_; }
  // The event was raised, for whatever reason.
  void told() { held_ = 0; }

  // When the event is due in any case. Zero where nothing is held back, or no time was set.
  [[nodiscard]] std::uint64_t deadline_ns() const {
    return held_ > 0 && period_ns_ > 0 ? held_since_ns_ + period_ns_ : 0;
  }

 private:
  std::uint32_t count_ = 0;
  std::uint64_t period_ns_ = 0;
  std::uint32_t held_ = 0;
  std::uint64_t held_since_ns_ = 0;
};

// Calls back when a moderated event has waited long enough, unless the queue is gone by then.
class ModerationClock final : public Pollable {
 public:
  explicit ModerationClock(std::function<void()> tick) : tick_(std::move(tick)) {}
  // Waits for a call that is under way.
  void stop();
  void on_ready(std::uint32_t /*events*/) override {}
  void on_deadline() override;

 private:
  std::mutex mutex_;
  std::function<void()> tick_;
};

}  // namespace weft::device
