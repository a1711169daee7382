// An application thread that waits in poll(2) and runs an event loop meanwhile.
#include "base/wait_loop.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <functional>

#include "base/duration.h"
#include "base/event_fd.h"

namespace weft {
namespace {

WaitLoop::Time now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<WaitLoop::Time>(std::chrono::nanoseconds(since).count());
}

// A loop with one event and one timer.
class Loop final : public WaitLoop {
 public:
  std::optional<Time> run_timers() override {
    if (timer && now() >= *timer) {
      timer.reset();
      on_timer();
    }
    return timer;
  }
  [[nodiscard]] int descriptor() const override { return event.get(); }
  void dispatch_ready() override {
    event.drain();
    on_event();
  }
  [[nodiscard]] int sleep(std::span<pollfd> entries, std::optional<Time> until,
                          const sigset_t* mask) override {
    const Time start = now();
    const timespec left =
        timespec_of(std::chrono::nanoseconds(until && *until > start ? *until - start : 0));
    const int ready = ppoll(entries.data(), entries.size(), until ? &left : nullptr, mask);
    return ready < 0 ? -errno : ready;
  }

  EventFd event;
  std::optional<Time> timer;
  std::function<void()> on_event = [] {};
  std::function<void()> on_timer = [] {};
};

TEST(WaitLoop, AnEventOfTheLoopMayMakeAnEntryReady) {
  Loop loop;
  const EventFd waited_for;
  loop.on_event = [&] { waited_for.signal(); };
  loop.event.signal();
  std::array entries{pollfd{waited_for.get(), POLLIN, 0}};
  EXPECT_EQ(run_wait_loop(loop, entries, std::nullopt, nullptr), 1);
  EXPECT_EQ(entries[0].revents, POLLIN);
}

TEST(WaitLoop, RunsTimersWhileItWaits) {
  Loop loop;
  const EventFd waited_for;
  loop.timer = now() + 1'000'000;
  loop.on_timer = [&] { waited_for.signal(); };
  std::array entries{pollfd{waited_for.get(), POLLIN, 0}};
  EXPECT_EQ(run_wait_loop(loop, entries, std::nullopt, nullptr), 1);
}

TEST(WaitLoop, ReturnsNothingAtTheDeadline) {
  Loop loop;
  const EventFd waited_for;
  int events = 0;
  loop.on_event = [&] { ++events; };
  loop.event.signal();
  std::array entries{pollfd{waited_for.get(), POLLIN, 0}};
  EXPECT_EQ(run_wait_loop(loop, entries, now() + 1'000'000, nullptr), 0);
  EXPECT_EQ(entries[0].revents, 0);
  EXPECT_EQ(events, 1);
}

}  // namespace
}  // namespace weft
