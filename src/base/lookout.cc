#include "base/lookout.h"

#include <algorithm>
#include <vector>

namespace weft {
namespace {

// A longer moment means fewer looks, and more delay where the application does not come back.
constexpr std::chrono::microseconds shortest_moment{100};
constexpr std::chrono::microseconds longest_moment{1000};

Duty::Time now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<Duty::Time>(std::chrono::nanoseconds(since).count());
}

std::optional<Duty::Time> earlier(std::optional<Duty::Time> a, std::optional<Duty::Time> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

}  // namespace

bool Lookout::enter() {
  const std::lock_guard lock(mutex_);
  if (++waiters_ > 1 || ended_) return false;
  ++turns_;
  led_ = true;
  return true;
}

void Lookout::leave(bool led) {
  {
    const std::lock_guard lock(mutex_);
    --waiters_;
    if (!led) return;
    led_ = false;
    if (!aside_ || (!asleep_ && waiters_ == 0)) return;
    called_ = waiters_ > 0;
  }
  changed_.notify_one();
}

void Lookout::stand_aside() {
  std::unique_lock lock(mutex_);
  aside_ = true;
  auto moment = shortest_moment;
  while (!called_ && !ended_) {
    const auto turns = turns_;
    changed_.wait_for(lock, moment, [this] { return called_ || ended_; });
    if (turns != turns_) {
      moment = std::min(moment * 2, longest_moment);
    } else if (!led_) {
      break;
    } else {
      asleep_ = true;
      changed_.wait(lock, [this] { return !led_ || called_ || ended_; });
      asleep_ = false;
    }
  }
  called_ = false;
  aside_ = false;
}

void Lookout::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
}

int sleep_on_duty(Duty& duty, std::span<pollfd> entries, std::optional<Duty::Time> until,
                  const sigset_t* mask) {
  std::vector<pollfd> all(entries.begin(), entries.end());
  all.push_back({duty.descriptor(), POLLIN, 0});
  const auto asked = std::span(all).first(entries.size());
  while (true) {
    int ready = duty.sleep(all, earlier(duty.do_due(), until), mask);
    if (ready < 0) return ready;
    if (all.back().revents != 0) {
      duty.look();
      // Often it has brought about what is waited for.
      if (--ready == 0) ready = duty.sleep(asked, 0, mask);
    }
    if (ready != 0 || (until && now() >= *until)) {
      std::ranges::copy(asked, entries.begin());
      return ready;
    }
  }
}

}  // namespace weft
