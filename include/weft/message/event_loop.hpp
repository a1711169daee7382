// EventLoop: drives listeners and connections, and calls their callbacks.
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
#include "weft/handle.hpp"
#include "weft/message/connection.hpp"
#include "weft/message/coroutine.hpp"
#include "weft/message/limits.hpp"
#include "weft/message/listener.hpp"

namespace weft::message {

// All work is done inside of step() or run(), in the thread that calls them, including all
// callbacks. post(), call(), wake(), stop(), spawn() and fd() may be called from any thread; the
// others only from the thread that is inside of step() or, while none is, from one thread at a
// time. A callback may destroy the loop. That ends its connections without further callbacks.
class EventLoop {
 public:
  // Throws Error.
  WEFT_API explicit EventLoop(const Limits& limits = {},
                              verbs::Backend backend = verbs::default_backend());
  // A loop whose listeners and connections use this embedded device, of open_own_device() for
  // example, and keep it open. Throws Error.
  WEFT_API EventLoop(const Limits& limits, const verbs::Context& device);
  WEFT_API EventLoop(EventLoop&&) noexcept;
  WEFT_API EventLoop& operator=(EventLoop&&) noexcept;
  WEFT_API ~EventLoop();

  // --- Running
  // Does all work that is due, and returns how much it was. If there is none, it waits for work,
  // for wake(), or until the deadline. Throws std::logic_error when called from a callback, and
  // whatever a callback throws.
  WEFT_API std::size_t step(Deadline deadline = Deadline::now());
  // Calls step() until stop(). A stop() that came before run() ends it at once.
  WEFT_API void run();
  WEFT_API void run(std::stop_token stop);
  // Readable while step() has work to do: for poll(2), epoll(7), or another loop. Belongs to this.
  // Throws Error(EOPNOTSUPP) if the embedded device has no thread (DeviceOptions::progress is
  // manual): data arrives only while this loop runs, so nothing would make it readable.
  [[nodiscard]] WEFT_API int fd() const;
  // Makes step() return, the one that runs or the next one. Any thread.
  WEFT_API void wake();
  // Ends run(), the one that runs or the next one. Any thread.
  WEFT_API void stop();

  // Queues `work` for the loop's thread. Work that one thread posts runs in the order of its posts.
  WEFT_API void post(std::function<void()> work);
  // Runs `work` in the loop's thread, and returns or throws what it does. Waits for that, so
  // another thread must run the loop; in the loop's own thread it runs at once.
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
  // Calls `work` once, after the delay.
  WEFT_API TimerId after(std::chrono::nanoseconds delay, std::function<void()> work);
  // False if the timer has been called already.
  WEFT_API bool cancel(TimerId timer);

  // Runs a coroutine in the loop's thread. step() throws what the coroutine throws. A coroutine
  // that still waits when the loop is destroyed is destroyed there.
  WEFT_API void spawn(Task<> task);
  // For coroutines that wait for objects of other layers, such as weft::connection::Async.
  [[nodiscard]] WEFT_API Executor& executor();
  // For a coroutine: waits until the deadline; false if it was stopped.
  [[nodiscard]] WEFT_API detail::Wait<bool> sleep(Deadline deadline, std::stop_token stop = {});

  // --- Connections
  // Begins to connect; the callback `established` or `error` follows. The name of a host is looked
  // up in a thread of its own. Throws Error if the attempt cannot begin.
  WEFT_API Connection connect(const Address& peer, Handlers handlers, const Options& options = {});
  // An empty host is any local address, port 0 a free port. Without a handler all requests are
  // rejected. `backlog`: requests that may wait to be handled, 0 for the default. Throws Error.
  [[nodiscard]] WEFT_API Listener listen(const Address& address, RequestHandler on_request,
                                         int backlog = 0);

  // The limits that the loop was created with.
  [[nodiscard]] WEFT_API const Limits& limits() const;
  // The number of connections that have not ended yet.
  [[nodiscard]] WEFT_API std::size_t connections() const;

 private:
  friend class Acceptor;
  friend class Request;
  [[nodiscard]] WEFT_API bool is_inside() const;
  weft::detail::Held<std::shared_ptr<detail::LoopCore>, "weft::message::EventLoop"> core_;
};

// A listener for coroutines. It keeps requests until a coroutine takes them with next(). It must
// not be destroyed while a coroutine waits for it.
class Acceptor {
 public:
  // Listens, as EventLoop::listen() does. Throws Error.
  WEFT_API Acceptor(EventLoop& loop, const Address& address, int backlog = 0);
  WEFT_API ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // The port that it listens on; the one that was chosen where 0 was asked for.
  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }
  // The next request; nothing if the wait has ended by the deadline or by `stop`.
  [[nodiscard]] WEFT_API detail::Wait<std::optional<Request>> next(
      Deadline deadline = Deadline::never(), std::stop_token stop = {});

 private:
  struct Queue;
  std::weak_ptr<detail::LoopCore> loop_;
  std::shared_ptr<Queue> queue_;
  Listener listener_;
};

}  // namespace weft::message
