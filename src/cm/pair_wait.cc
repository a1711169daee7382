#include "cm/pair_wait.h"

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/pause.h"
#include "base/undisturbed.h"
#include "device/device.h"
#include "device/system.h"

namespace weft::cm {

using device::Waiting;

PairWait& PairWait::of_thread() {
  static thread_local PairWait wait;
  return wait;
}

bool PairWait::begin(Channel& channel, device::Context& context) noexcept {
  return !channel.has_event() && of_thread().begin_at(channel, context);
}

// With WEFT_PROGRESS=thread only that thread moves data, and with `manual` the program's own calls.
// A program that has made the descriptor non-blocking waits elsewhere.
bool PairWait::begin_at(Channel& channel, device::Context& context) {
  device::Engine& engine = context.engine();
  if (engine.mode() != device::ProgressMode::automatic || engine.simulated()) return false;
  auto pair = context.device().process_pairs().latest();
  if (!pair || device::sys::nonblocking(channel.handle()->fd) || !pair->begin_wait()) return false;
  if (!channel.begin_pair_wait(*pair)) {
    pair->end_wait();
    return false;
  }
  engine_ = &engine;
  channel_ = channel.shared_from_this();
  pair_ = std::move(pair);
  looked_ = false;
  return true;
}

// Nothing in this frame needs a destructor, because the thread may be cancelled here.
int PairWait::await() {
  while (true) {
    const Found found = look_or_end();
    if (found != Found::nothing) return found == Found::token ? 0 : EINTR;
    const int failed = device::sys::await_wake(&of_thread().pair_->waiting_word(),
                                               static_cast<std::uint32_t>(Waiting::sleeps));
    if (failed == EINTR) {
      end_of_thread();
      return failed;
    }
  }
}

// While the thread looks its peer relies on it. A signal that comes meanwhile counts as one that
// comes while it sleeps.
PairWait::Found PairWait::look_or_end() noexcept {
  const Undisturbed undisturbed;
  PairWait& wait = of_thread();
  const Found found = wait.look()                             ? Found::token
                      : undisturbed.holds_back_interruption() ? Found::signal
                                                              : Found::nothing;
  if (found != Found::nothing) wait.end();
  return found;
}

bool PairWait::is_at(const Channel& channel) noexcept {
  return of_thread().channel_.get() == &channel;
}

void PairWait::end_of_thread() noexcept {
  const Undisturbed undisturbed;
  of_thread().end();
}

// False: the thread may sleep.
bool PairWait::look() {
  while (true) {
    pair_->look_on();
    pair_->look();
    if (take_token() || (!std::exchange(looked_, true) && look_briefly())) return true;
    // The progress thread must not be asleep where others rely on this one.
    engine_->expect_sleep();
    if (pair_->begin_sleep() && !channel_->has_event()) return false;
  }
}

bool PairWait::look_briefly() {
  if (!rule_.allows()) return false;
  constexpr int looks = 16;
  const auto outcome = look_for_a_moment([this] {
    bool found = false;
    for (int i = 0; i < looks && !found; ++i) {
      pause_processor();
      pair_->look();
      found = channel_->has_event();
    }
    return found && take_token();
  });
  rule_.learn(outcome);
  return outcome.found;
}

bool PairWait::take_token() {
  std::uint64_t one = 0;
  return channel_->has_event() &&
         device::sys::read_nowait(channel_->handle()->fd, &one, sizeof one) == sizeof one;
}

void PairWait::end() {
  if (!pair_) return;
  channel_->end_pair_wait();
  std::exchange(pair_, nullptr)->end_wait();
  channel_.reset();
}

}  // namespace weft::cm
