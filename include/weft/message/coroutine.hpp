// Coroutines instead of callbacks:
//
//   Task<> serve(Acceptor& acceptor) {
//     while (auto request = co_await acceptor.next()) {
//       Connection peer = request->accept({});
//       co_await peer.established();
//       while (auto message = co_await peer.receive()) co_await peer.send(message->bytes());
//     }
//   }
//   loop.spawn(serve(acceptor));
//
// Everything runs in the loop's thread. Each wait takes a deadline and a std::stop_token. A wait
// that one of them ends returns that, and has no other effect. A connection from which coroutines
// receive must not have a `message` callback.
#pragma once

#include <coroutine>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "weft/deadline.hpp"
#include "weft/export.hpp"
#include "weft/task.hpp"

namespace weft::message {

using weft::Task;

namespace detail {

class LoopCore;

// Why a waiting coroutine was resumed: its condition is true, its deadline has passed, or its
// std::stop_token was triggered.
enum class Woken { ready, late, stopped };

// A coroutine that waits. It is resumed once, in the loop's thread, by the first of the three
// reasons.

class Suspension : public std::enable_shared_from_this<Suspension> {
 public:
  WEFT_API Suspension(std::weak_ptr<LoopCore> loop, Deadline deadline, std::stop_token stop);
  WEFT_API ~Suspension();
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;

  WEFT_API void suspend(std::coroutine_handle<> waiting);
  // Resumes the coroutine. Later calls do nothing.
  WEFT_API void resume(Woken why);
  // The coroutine must not be resumed any more: it is being resumed, or was destroyed.
  WEFT_API void forget();
  [[nodiscard]] bool waits() const { return waiting_ != nullptr; }
  [[nodiscard]] Woken why() const { return why_; }

 private:
  struct Stop {
    Suspension* suspension;
    void operator()() const noexcept;
  };

  std::weak_ptr<LoopCore> loop_;
  Deadline deadline_;
  std::stop_token stop_;
  std::coroutine_handle<> waiting_;
  Woken why_ = Woken::ready;
  std::uint64_t timer_ = 0;
  std::optional<std::stop_callback<Stop>> callback_;
};

// The awaitable of a wait. `ready` returns whether the condition is true; `watch` arranges that
// resume() is called once it is; `take` makes the result.
template <typename Result>
class [[nodiscard]] Wait {
 public:
  using Ready = std::function<bool()>;
  using Watch = std::function<void(std::shared_ptr<Suspension>, Ready)>;
  using Take = std::function<Result(Woken)>;

  Wait(std::shared_ptr<Suspension> suspension, Ready ready, Watch watch, Take take)
      : suspension_(std::move(suspension)),
        ready_(std::move(ready)),
        watch_(std::move(watch)),
        take_(std::move(take)) {}
  Wait(Wait&&) noexcept = default;
  Wait& operator=(Wait&&) = delete;
  ~Wait() {
    if (suspension_) suspension_->forget();
  }

  [[nodiscard]] bool await_ready() const { return ready_(); }
  void await_suspend(std::coroutine_handle<> waiting) {
    suspension_->suspend(waiting);
    watch_(suspension_, ready_);
  }
  Result await_resume() { return take_(suspension_->why()); }

 private:
  std::shared_ptr<Suspension> suspension_;
  Ready ready_;
  Watch watch_;
  Take take_;
};

}  // namespace detail
}  // namespace weft::message
