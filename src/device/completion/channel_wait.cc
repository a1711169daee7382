#include "device/completion/channel_wait.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/undisturbed.h"
#include "device/system.h"

namespace weft::device {
namespace {

using Clock = std::chrono::steady_clock;

// Of a message over TCP, with an answer by the device.
constexpr std::chrono::microseconds longest_handling{60};

}  // namespace

ChannelWait& ChannelWait::of_thread() {
  static thread_local ChannelWait wait;
  return wait;
}

// With WEFT_PROGRESS=thread only that thread moves data, and with `manual` the program's own calls.
// A program that has made the descriptor non-blocking waits elsewhere.
bool ChannelWait::begin(CompletionChannel& channel, Engine& engine) {
  if (channel.has_event() || !engine.may_be_led() || engine.moves_bulk() ||
      sys::nonblocking(channel.verbs()->fd)) {
    return false;
  }
  of_thread().begin_at(channel, engine);
  return true;
}

void ChannelWait::begin_at(CompletionChannel& channel, Engine& engine) {
  channel_ = &channel;
  engine_ = &engine;
  looked_ = false;
  if (lead_rule_.allows()) waiter_.emplace(engine.wait_leader());
  entries_ = {{{.fd = channel.verbs()->fd, .events = POLLIN, .revents = 0},
               {.fd = engine.wait_loop().descriptor(), .events = POLLIN, .revents = 0}}};
  if (leads()) engine.end_steady_polling();
}

// Nothing in this frame needs a destructor, because the thread may be cancelled here.
int ChannelWait::await() {
  while (true) {
    const Found found = look_or_end();
    if (found == Found::token) return 0;
    ChannelWait& wait = of_thread();
    const bool leads = wait.leads();
    int failed = EINTR;
    if (found == Found::nothing) {
      failed = leads ? sys::await_ready(wait.entries_, wait.until_ns_)
                     : sys::await_token(wait.entries_.front().fd);
    }
    // poll(2) ends by each signal handler, and read(2) not by those with SA_RESTART: signal(7).
    const bool goes_on = failed == 0 ? leads : failed == EINTR && sys::handlers_restart_calls();
    if (goes_on) continue;
    end_of_thread();
    return failed;
  }
}

// Peers and other threads rely on the thread while it looks. A signal that came meanwhile ends the
// wait as one that comes while it sleeps.
ChannelWait::Found ChannelWait::look_or_end() noexcept {
  const Undisturbed undisturbed;
  ChannelWait& wait = of_thread();
  if (!wait.look()) return undisturbed.holds_back_signals() ? Found::signal : Found::nothing;
  wait.end();
  return Found::token;
}

void ChannelWait::end_of_thread() noexcept {
  const Undisturbed undisturbed;
  of_thread().end();
}

// False: the thread may sleep.
bool ChannelWait::look() {
  while (true) {
    if (leads()) serve();
    if (channel_->take_token()) return true;
    if (!std::exchange(looked_, true) && look_for_a_moment()) return true;
    if (leads()) {
      until_ns_ = engine_->wait_loop().run_timers();
    } else {
      // The progress thread must leave nothing to this one.
      engine_->expect_sleep();
    }
    if (!channel_->has_event()) return false;
  }
}

// After a sleep. Where another thread of the program polls, the progress thread leaves the data to
// it (Engine::leave_to_application()), and this one would take them away.
void ChannelWait::serve() {
  if (entries_.back().revents == 0) return;
  engine_->wait_loop().dispatch_ready();
  const bool disturbs = engine_->take_polled() && !channel_->has_event();
  lead_rule_.learn(!disturbs);
  // A descriptor that the program has closed is reported by read(2).
  if (disturbs || (entries_.front().revents & POLLNVAL) != 0) waiter_.reset();
}

bool ChannelWait::look_for_a_moment() {
  if (!rule_.allows() || !channel_->begin_look()) return false;
  const bool found = look_repeatedly();
  // What arrives from now on wakes this process again, and what has come by now is found here.
  channel_->end_look();
  (void)engine_->take_polled();
  return found || channel_->take_token();
}

bool ChannelWait::look_repeatedly() {
  constexpr int looks = 4;
  const auto start = Clock::now();
  auto last = start;
  auto yielded = start;
  while (true) {
    bool found = false;
    for (int i = 0; i < looks && !found; ++i) {
      channel_->look();
      found = channel_->has_event();
    }
    const auto now = Clock::now();
    found = found && channel_->take_token();
    // What came is handled meanwhile, which may send over TCP.
    const bool disturbed = now - last > (found ? longest_handling : SpinRule::disturbance);
    if (found || disturbed || now - start >= SpinRule::longest) {
      disturbed ? rule_.learn_disturbed() : rule_.learn(found);
      return found;
    }
    last = now;
    if (now - yielded < SpinRule::turn) continue;
    sys::yield();
    yielded = now;
  }
}

void ChannelWait::end() {
  waiter_.reset();
  channel_ = nullptr;
}

}  // namespace weft::device
