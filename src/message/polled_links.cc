#include "message/polled_links.h"

#include <utility>

#include "message/link.h"

namespace weft::message::detail {

// Calls `idle` for each connection without completions; it returns whether the connection stays. A
// handler may end this connection or others, which takes them out of the list.
template <typename Idle>
std::size_t PolledLinks::look(const bool& stopped, const Idle& idle) {
  std::size_t done = 0;
  for (std::size_t i = 0; i < links_.size() && !stopped;) {
    const auto link = links_[i].link;
    const std::size_t by_link = link->look();
    done += by_link;
    const bool is_there = i < links_.size() && links_[i].link == link;
    if (is_there && by_link > 0) links_[i].idle_turns = 0;
    if (is_there && (by_link > 0 || idle(links_[i]))) ++i;
  }
  return done;
}

std::size_t PolledLinks::look(const bool& stopped) {
  return look(stopped, [](const Polled&) { return true; });
}

std::size_t PolledLinks::turn(const bool& stopped) {
  if (crowded_) return arm(stopped);
  std::size_t late = 0;
  const std::size_t done = look(stopped, [&](Polled& one) {
    // A connection that has sent is active as well.
    if (one.link->take_posted()) one.idle_turns = 0;
    if (++one.idle_turns < most_idle_turns) return true;
    const auto link = std::move(one.link);
    // The order does not matter.
    one = std::move(links_.back());
    links_.pop_back();
    late += link->arm();
    return false;
  });
  return done + late;
}

std::size_t PolledLinks::arm(const bool& stopped) {
  std::size_t done = 0;
  while (!links_.empty() && !stopped) {
    const auto link = std::move(links_.back().link);
    links_.pop_back();
    done += link->arm();
  }
  return done;
}

}  // namespace weft::message::detail
