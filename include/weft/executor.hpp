// The interface between coroutines and the event loop that they run in.
#pragma once

#include <functional>

#include "weft/export.hpp"

namespace weft {

// Any event loop that can watch a descriptor. weft::message::EventLoop is an executor, and
// <weft/asio.hpp> makes one from Asio's loop. An executor must outlive the coroutines that wait in
// it. Its functions are called from the thread that runs the awaiting coroutine, which is a thread
// of the loop. They must be thread-safe if the loop has several threads.
class WEFT_API Executor {
 public:
  virtual ~Executor() = default;

  // Calls `ready` once, from the loop, when `fd` is readable; never from inside this function. Only
  // one call at a time may be registered for a descriptor. Throws Error if it cannot be watched.
  virtual void when_readable(int fd, std::function<void()> ready) = 0;
  // Cancels when_readable() before `ready` was called.
  virtual void forget(int fd) noexcept = 0;
};

}  // namespace weft
