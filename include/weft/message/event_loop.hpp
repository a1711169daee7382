// What drives listeners and connections.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "weft/deadline.hpp"
#include "weft/executor.hpp"
#include "weft/export.hpp"
#include "weft/message/connection.hpp"
#include "weft/message/coroutine.hpp"
#include "weft/message/limits.hpp"
#include "weft/message/listener.hpp"

namespace weft::message {

// Everything happens inside of step() or run(), in the thread that calls them: all callbacks come
// from there. Only post(), call(), wake(), stop() and fd() may be called from any thread; the rest
// from the thread that is inside, or where none is, from one at a time. Destroying the loop, which
// a callback may do, ends its connections without further callbacks.
class EventLoop {
 public:
  // Throws Error.
  WEFT_API explicit EventLoop(const Limits& limits = {},
                              verbs::Backend backend = verbs::default_backend());
  WEFT_API EventLoop(EventLoop&&) noexcept;
  WEFT_API EventLoop& operator=(EventLoop&&) noexcept;
  WEFT_API ~EventLoop();

  // --- Driving it
  // Does what there is to do, then returns how much it was; where there is nothing, waits until
  // there is, a wake(), or the deadline. Not from a callback: std::logic_error.
  WEFT_API std::size_t step(Deadline deadline = Deadline::now());
  // Steps until stop(), which may have come before; that is then forgotten.
  WEFT_API void run();
  WEFT_API void run(std::stop_token stop);
  // Readable while step() has something to do: for poll(2), epoll(7), or another loop.
  [[nodiscard]] WEFT_API int fd() const;
  WEFT_API void wake();
  WEFT_API void stop();

  // Calls `work` in the loop's thread, soon; in the order of the posts of one thread.
  WEFT_API void post(std::function<void()> work);
  // The same, and waits for what it returns or throws. For the loop's own thread: at once. The loop
  // must be running, or somebody else must step it.
  template <typename Work>
  auto call(Work&& work) -> std::invoke_result_t<Work> {
    if (is_inside()) return std::forward<Work>(work)();
    using Result = std::invoke_result_t<Work>;
    auto task = std::make_shared<std::packaged_task<Result()>>(std::forward<Work>(work));
    auto result = task->get_future();
    post([task] { (*task)(); });
    return result.get();
  }

  using TimerId = std::uint64_t;
  // Calls `work` once, when that time has passed.
  WEFT_API TimerId after(std::chrono::nanoseconds delay, std::function<void()> work);
  // False where it was called already.
  WEFT_API bool cancel(TimerId timer);

  // Runs a coroutine in the loop's thread, from any thread. What it throws comes out of step().
  // What still waits when the loop ends is destroyed where it waits.
  WEFT_API void spawn(Task<> task);
  // For coroutines that await what other layers have: weft::connection::Async.
  [[nodiscard]] WEFT_API Executor& executor();
  // For a coroutine: a pause; false where it was stopped.
  [[nodiscard]] WEFT_API detail::Wait<bool> sleep(Deadline deadline, std::stop_token stop = {});

  // --- Connections
  // Begins to connect; `established` or `error` follows. Host names are resolved during the call.
  // Throws Error where it cannot even begin.
  WEFT_API Connection connect(const Address& peer, Handlers handlers, const Options& options = {});
  // An empty host is any local address, port 0 a free one. Requests are rejected where there is no
  // handler. `backlog`: requests that may wait to be looked at, 0 for a default. Throws Error.
  [[nodiscard]] WEFT_API Listener listen(const Address& address, RequestHandler on_request,
                                         int backlog = 0);

  [[nodiscard]] WEFT_API const Limits& limits() const;
  // That have not ended yet.
  [[nodiscard]] WEFT_API std::size_t connections() const;

 private:
  friend class Acceptor;
  friend class Request;
  [[nodiscard]] WEFT_API bool is_inside() const;
  std::shared_ptr<detail::LoopCore> core_;
};

// A listener for coroutines. Requests wait in it until they are awaited; it may be destroyed when
// nobody awaits it.
class Acceptor {
 public:
  WEFT_API Acceptor(EventLoop& loop, const Address& address, int backlog = 0);
  WEFT_API ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }
  // The next request; nothing where the wait has ended.
  [[nodiscard]] WEFT_API detail::Wait<std::optional<Request>> next(
      Deadline deadline = Deadline::never(), std::stop_token stop = {});

 private:
  struct Queue;
  std::weak_ptr<detail::LoopCore> loop_;
  std::shared_ptr<Queue> queue_;
  Listener listener_;
};

}  // namespace weft::message
