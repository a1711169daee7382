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
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <variant>

#include "weft/deadline.hpp"
#include "weft/export.hpp"

namespace weft::message {

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

template <typename T>
struct TaskPromise;

}  // namespace detail

// What a coroutine will have computed. Begins when it is awaited or spawned; destroying it ends it
// where it waits.
template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;

  Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(frame_, other.frame_);
    return *this;
  }
  ~Task() {
    if (frame_) frame_.destroy();
  }

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiting) noexcept {
    frame_.promise().continuation = waiting;
    return frame_;
  }
  T await_resume() { return frame_.promise().take(); }

 private:
  friend promise_type;
  explicit Task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}

  std::coroutine_handle<promise_type> frame_;
};

namespace detail {

struct TaskPromiseBase {
  struct Final {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> done) const noexcept {
      return done.promise().continuation;
    }
    void await_resume() const noexcept {}
  };

  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  [[nodiscard]] Final final_suspend() const noexcept { return {}; }
  void unhandled_exception() { failed = std::current_exception(); }

  std::coroutine_handle<> continuation = std::noop_coroutine();
  std::exception_ptr failed;
};

template <typename T>
struct TaskPromise : TaskPromiseBase {
  Task<T> get_return_object() {
    return Task<T>(std::coroutine_handle<TaskPromise>::from_promise(*this));
  }
  template <typename Value>
  void return_value(Value&& value) {
    result.emplace(std::forward<Value>(value));
  }
  T take() {
    if (failed) std::rethrow_exception(failed);
    return std::move(*result);
  }
  std::optional<T> result;
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  Task<void> get_return_object() {
    return Task<void>(std::coroutine_handle<TaskPromise>::from_promise(*this));
  }
  void return_void() const noexcept {}
  void take() const {
    if (failed) std::rethrow_exception(failed);
  }
};

}  // namespace detail
}  // namespace weft::message
