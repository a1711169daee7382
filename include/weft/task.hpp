// The return type of coroutines.
#pragma once

#include <coroutine>
#include <exception>
#include <mutex>
#include <optional>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "weft/handle.hpp"

namespace weft {

namespace detail {
template <typename T>
struct TaskPromise;
}  // namespace detail

// A coroutine that returns T. It starts when another coroutine awaits it, or when an event loop or
// a TaskSet starts it. It resumes in the thread that its executor chooses. Destroying the task
// destroys the coroutine where it is suspended. An exception in it is thrown again by co_await.
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
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiting) {
    if (!frame_) detail::throw_empty("weft::Task");
    frame_.promise().continuation = waiting;
    return frame_;
  }
  T await_resume() { return frame_.promise().take(); }

 private:
  friend promise_type;
  explicit Task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}

  std::coroutine_handle<promise_type> frame_;
};

// Runs tasks that no coroutine awaits. Thread-safe, except for clear() and the destructor: no other
// thread may resume a task meanwhile.
class TaskSet {
 public:
  // A set without tasks.
  TaskSet() = default;
  TaskSet(const TaskSet&) = delete;
  TaskSet& operator=(const TaskSet&) = delete;
  ~TaskSet() { clear(); }

  // Destroys all tasks that have not ended, where they are suspended.
  void clear() {
    while (const auto frame = any()) frame.destroy();
  }

  // Starts the task at once. When it has ended, calls `done` with its exception, which may be null,
  // and unless T is void with a std::optional of its result. `done` must not throw.
  template <typename T, typename Done>
  void start(Task<T> task, Done done) {
    run(*this, std::move(task), std::move(done));
  }

 private:
  // A coroutine that starts at once, is not awaited, and frees its frame when it ends.
  struct Detached {
    struct promise_type {
      Detached get_return_object() const noexcept { return {}; }
      [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }
      [[nodiscard]] std::suspend_never final_suspend() const noexcept { return {}; }
      void return_void() const noexcept {}
      void unhandled_exception() const noexcept { std::terminate(); }  // run() catches all
    };
  };
  struct OwnFrame {
    std::coroutine_handle<> frame;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> own) noexcept {
      frame = own;
      return false;
    }
    [[nodiscard]] std::coroutine_handle<> await_resume() const noexcept { return frame; }
  };
  struct Member {
    TaskSet& set;
    std::coroutine_handle<> frame;
    Member(TaskSet& to, std::coroutine_handle<> own) : set(to), frame(own) {
      const std::lock_guard lock(set.lock_);
      set.frames_.insert(frame.address());
    }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    ~Member() {
      const std::lock_guard lock(set.lock_);
      set.frames_.erase(frame.address());
    }
  };

  std::coroutine_handle<> any() {
    const std::lock_guard lock(lock_);
    if (frames_.empty()) return nullptr;
    return std::coroutine_handle<>::from_address(*frames_.begin());
  }

  template <typename T, typename Done>
  static Detached run(TaskSet& set, Task<T> task, Done done) {
    const auto own = co_await OwnFrame{};
    std::exception_ptr failed;
    std::optional<std::conditional_t<std::is_void_v<T>, bool, T>> result;
    {
      const Member member(set, own);
      try {
        if constexpr (std::is_void_v<T>) {
          co_await task;
        } else {
          result.emplace(co_await task);
        }
      } catch (...) {
        failed = std::current_exception();
      }
    }
    if constexpr (std::is_void_v<T>) {
      done(failed);
    } else {
      done(failed, std::move(result));
    }
  }

  std::mutex lock_;
  std::unordered_set<void*> frames_;
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
}  // namespace weft
