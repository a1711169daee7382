// PolledLinks: the connections of a loop that are active. The loop polls their queues in each turn
// and before it sleeps, so that what comes meanwhile needs neither an event nor a wake-up.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "message/spin_rule.h"

namespace weft::message::detail {

class Link;

// Not thread-safe: belongs to the loop's thread.
class PolledLinks {
 public:
  // Whether one more connection may be polled; otherwise it has to be armed.
  [[nodiscard]] bool has_room() const { return !crowded_ && links_.size() < most; }
  void add(std::shared_ptr<Link> link) { links_.push_back({std::move(link)}); }
  void remove(const std::shared_ptr<Link>& link) {
    std::erase_if(links_, [&](const Polled& one) { return one.link == link; });
  }
  void clear() { links_.clear(); }
  [[nodiscard]] bool empty() const { return links_.empty(); }

  // Whether a turn asks the kernel for other events first. While connections are polled, only one
  // of several turns does, unless the last question has found something.
  [[nodiscard]] bool asks_kernel() {
    return links_.empty() || crowded_ || ++turns_ % turns_per_question == 0;
  }
  // The kernel was asked, and has reported `count` events of connections that are not polled.
  void note_events(std::size_t count) {
    crowded_ = count > 0 && (crowded_ || links_.size() == most);
    turns_ = count > 0 ? turns_per_question - 1 : 0;
  }
  // Before the loop sleeps: whether polling for a while is worth it.
  [[nodiscard]] bool may_spin() { return !links_.empty() && rule_.allows(); }
  void learn(bool found) { rule_.learn(found); }

  // Gives each connection that has completions a turn, until `stopped`. Returns how much was done.
  // One that has had nothing for some turns is armed. Where more connections are active than are
  // polled, these would get more than their share, so all of them are armed.
  std::size_t turn(const bool& stopped);
  // The same, but for idle connections, which stay.
  std::size_t look(const bool& stopped);
  // Arms all queues, so that events report completions from now on. Handles what came before.
  std::size_t arm(const bool& stopped);

 private:
  struct Polled {
    std::shared_ptr<Link> link;
    unsigned idle_turns = 0;
  };
  // To look at one costs a twentieth of an event, so an idle one is not looked at more often.
  static constexpr unsigned most_idle_turns = 16;
  static constexpr std::size_t most = 1024;
  static constexpr unsigned turns_per_question = 8;

  template <typename Idle>
  std::size_t look(const bool& stopped, const Idle& idle);

  std::vector<Polled> links_;
  SpinRule rule_;
  unsigned turns_ = 0;
  bool crowded_ = false;  // more connections are active than are polled
};

}  // namespace weft::message::detail
