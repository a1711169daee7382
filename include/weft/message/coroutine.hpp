// Coroutines instead of callbacks:
//
//   Task<> serve(Acceptor& acceptor) {
//     while (auto request = co_await acceptor.next()) {
//       Connection peer = request->accept({});
//       co_await peer.established();
//       while (auto message = co_await peer.next()) co_await peer.send(message->bytes());
//     }
//   }
//   loop.spawn(serve(acceptor));
//
// Everything runs in the loop's thread. What waits takes a deadline and a std::stop_token; a wait
// that ended so says it, and has no other effect. A connection whose messages are awaited has no
// `message` callback.
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

// A coroutine that waits, for one of three things.
enum class Woken { ready, late, stopped };

class Suspension : public std::enable_shared_from_this<Suspension> {
 public:
  WEFT_API Suspension(std::weak_ptr<LoopCore> loop, Deadline deadline, std::stop_token stop);
  WEFT_API ~Suspension();
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;

  WEFT_API void suspend(std::coroutine_handle<> waiting);
  // Once; later calls do nothing.
  WEFT_API void resume(Woken why);
  // The coroutine is gone.
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

// Waits until `ready` says so. `watch` sees to it that resume() is called then.
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
