#include "device/completion/channel_wait.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/undisturbed.h"
#include "device/system.h"

namespace weft::device {
namespace {

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
  channel_ = channel.hold();
  engine_ = &engine;
  looked_ = false;
  if (!learn_handlers().mixed() && lead_rule_.allows()) waiter_.emplace(engine.wait_leader());
  entries_ = {{{.fd = channel.verbs()->fd, .events = POLLIN, .revents = 0},
               {.fd = engine.wait_loop().descriptor(), .events = POLLIN, .revents = 0}}};
  if (leads()) engine.end_steady_polling();
}

// Programs install handlers rarely, and to look at all takes as long as a short wait.
const SignalHandlers& ChannelWait::learn_handlers() {
  constexpr std::uint64_t valid_ns = 10'000'000;
  const std::uint64_t now_ns = sys::now_ns();
  if (now_ns - handlers_ns_ > valid_ns) {
    handlers_ = handlers_of_thread();
    handlers_ns_ = now_ns;
  }
  return handlers_;
}

// Nothing in this frame needs a destructor, because the thread may be cancelled here.
int ChannelWait::await() {
  while (true) {
    const Found found = look_or_end();
    if (found != Found::nothing) return found == Found::token ? 0 : EINTR;
    ChannelWait& wait = of_thread();
    const bool leads = wait.leads();
    const int failed = leads ? sys::await_ready(wait.entries_, wait.until_ns_)
                             : sys::await_token(wait.entries_.front().fd);
    if (leads && (failed == 0 || (failed == EINTR && wait.goes_on_after_signal()))) continue;
    end_of_thread();
    return failed;
  }
}

// poll(2) ends behind each handler: this says whether read(2) would have gone on. A handler may
// have been there for one signal only (SA_RESETHAND).
bool ChannelWait::goes_on_after_signal() const {
  return !handlers_.interrupt && !handlers_of_thread().interrupt;
}

// Peers and other threads rely on the thread while it looks. A signal that comes meanwhile counts
// as one that comes while it sleeps.
ChannelWait::Found ChannelWait::look_or_end() noexcept {
  const Undisturbed undisturbed;
  ChannelWait& wait = of_thread();
  const Found found = wait.look()                             ? Found::token
                      : undisturbed.holds_back_interruption() ? Found::signal
                                                              : Found::nothing;
  if (found != Found::nothing) wait.end();
  return found;
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
    if (!std::exchange(looked_, true) && look_briefly()) return true;
    if (leads()) {
      // serve() learns only of polls that come after this call.
      (void)engine_->take_polled();
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

bool ChannelWait::look_briefly() {
  if (!rule_.allows() || !channel_->begin_look()) return false;
  constexpr int looks = 4;
  const auto outcome = look_for_a_moment(
      [this] {
        bool found = false;
        for (int i = 0; i < looks && !found; ++i) {
          channel_->look();
          found = channel_->has_event();
        }
        return found && channel_->take_token();
      },
      longest_handling);
  rule_.learn(outcome);
  // What arrives from now on wakes this process again, and what has come by now is found here.
  channel_->end_look();
  return outcome.found || channel_->take_token();
}

void ChannelWait::end() {
  waiter_.reset();
  channel_.reset();
}

}  // namespace weft::device
