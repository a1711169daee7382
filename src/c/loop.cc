// The C interface of event loops: weft/c/message.h.
#include "c/loop.h"

#include <algorithm>
#include <chrono>

#include "c/outcome.h"

using namespace weft::c;

namespace {

// A member that is 0, or that the program's release does not have, keeps its default.
weft::message::Limits limits_of(const weft_loop_limits* from) {
  weft::message::Limits limits;
  if (from == nullptr) return limits;
  WEFT_C_CHECK(from, weft_loop_limits, WEFT_LOOP_LIMITS);
  WEFT_C_TAKE(limits.max_message_bytes, from, max_message_bytes);
  WEFT_C_TAKE(limits.eager_bytes, from, eager_bytes);
  if (WEFT_C_HAS(from, credits) && from->credits != 0) {
    // The loop checks the limit itself. This only keeps the cast from making a valid number of a
    // larger one.
    if (from->credits > UINT16_MAX) {
      throw weft::Error(EINVAL, "a loop's credits are more than 32767");
    }
    limits.credits = static_cast<std::uint16_t>(from->credits);
  }
  WEFT_C_TAKE(limits.send_queue_messages, from, send_queue_messages);
  WEFT_C_TAKE(limits.send_queue_bytes, from, send_queue_bytes);
  WEFT_C_TAKE(limits.pool_bytes, from, pool_bytes);
  WEFT_C_TAKE(limits.max_connections, from, max_connections);
  if (WEFT_C_HAS(from, spin_us) && from->spin_us != 0) {
    limits.spin = std::chrono::microseconds(std::max<std::int64_t>(from->spin_us, 0));
  }
  return limits;
}

}  // namespace

int weft_loop_new(weft_loop** loop, const weft_loop_limits* limits) {
  return guarded([&] {
    // The loop throws Error(EINVAL) for limits that are out of range.
    *loop = new weft_loop{weft::message::EventLoop(limits_of(limits)), {}};
    return 0;
  });
}

void weft_loop_free(weft_loop* loop) {
  if (loop != nullptr && !loop->maker.is_parent()) delete loop;
}

ssize_t weft_loop_step(weft_loop* loop, int timeout_ms) {
  return guarded([&]() -> ssize_t {
    // The exception is a call from a callback, which would wait for itself, or from two threads at
    // once. guarded() would return -EPERM, as for an object that has ended.
    try {
      return static_cast<ssize_t>(loop->loop.step(deadline_of(timeout_ms)));
    } catch (const std::logic_error& error) {
      return fail(EDEADLK, error.what());
    }
  });
}

int weft_loop_run(weft_loop* loop) {
  return guarded([&] {
    try {
      loop->loop.run();
      return 0;
    } catch (const std::logic_error& error) {
      return fail(EDEADLK, error.what());
    }
  });
}

// Any thread may call this function, and those that wake the loop, post to it or return its
// descriptor.
void weft_loop_stop(weft_loop* loop) {
  loop->loop.stop();
}

void weft_loop_wake(weft_loop* loop) {
  loop->loop.wake();
}

int weft_loop_fd(weft_loop* loop) {
  return guarded([&] { return loop->loop.fd(); });
}

// `user` stays the program's: it must exist until the work is called, or the loop is freed.
int weft_loop_post(weft_loop* loop, void (*work)(void* user), void* user) {
  return guarded([&] {
    loop->loop.post([work, user] { work(user); });
    return 0;
  });
}

int weft_loop_after(weft_loop* loop, uint32_t delay_ms, void (*work)(void* user), void* user,
                    uint64_t* timer) {
  return guarded([&] {
    const auto id =
        loop->loop.after(std::chrono::milliseconds(delay_ms), [work, user] { work(user); });
    if (timer != nullptr) *timer = id;
    return 0;
  });
}

int weft_loop_cancel(weft_loop* loop, uint64_t timer) {
  return guarded([&] {
    if (loop->loop.cancel(timer)) return 0;
    return fail(ENOENT, "there is no such timer: it was called already");
  });
}
