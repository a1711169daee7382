// Something that the engine does later, once, unless it is cancelled before.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "device/engine.h"

namespace weft::device {

// The engine refers to it weakly: destroying the last owner cancels the call.
class DelayedCall final : public Pollable {
 public:
  [[nodiscard]] static std::shared_ptr<DelayedCall> start(Engine& engine, std::uint64_t delay_ns,
                                                          std::function<void()> call) {
    // Not make_shared: the engine keeps weak pointers to it for long, which would keep its memory.
    // NOLINTNEXTLINE(modernize-make-shared)
    std::shared_ptr<DelayedCall> made(new DelayedCall(std::move(call)));
    engine.call_at(sys::now_ns() + delay_ns, made);
    return made;
  }

  [[nodiscard]] bool done() const { return done_; }
  void on_ready(std::uint32_t /*epoll_events*/) override {}
  // Called with no lock held.
  void on_deadline() override {
    if (done_.exchange(true)) return;
    const auto call = std::move(call_);
    call_ = nullptr;
    call();
  }

 private:
  explicit DelayedCall(std::function<void()> call) : call_(std::move(call)) {}

  std::function<void()> call_;
  std::atomic<bool> done_{false};
};

}  // namespace weft::device
