// What coroutines run on.
#pragma once

#include <functional>

#include "weft/export.hpp"

namespace weft {

// Any event loop that can watch a descriptor: weft::message::EventLoop is one, <weft/asio.hpp>
// makes one of Asio's. An executor outlives the coroutines that wait in it. Its calls come from the
// thread of whoever awaits, which is the loop's own; a loop of several threads has to be safe for
// that.
class WEFT_API Executor {
 public:
  virtual ~Executor() = default;

  // Calls `ready` once, as soon as `fd` is readable, as the loop calls whatever it calls: never
  // from inside of this. Nobody else watches that descriptor. Throws Error where it cannot.
  virtual void when_readable(int fd, std::function<void()> ready) = 0;
  // `ready` is not wanted any more, and was not called yet.
  virtual void forget(int fd) noexcept = 0;
};

}  // namespace weft
