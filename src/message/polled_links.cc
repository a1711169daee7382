#include "message/polled_links.h"

#include <utility>

#include "message/link.h"

namespace weft::message::detail {

// A handler may end this connection or others, which takes them out of the list.
std::size_t PolledLinks::turn(const bool& stopped) {
  if (crowded_) return arm(stopped);
  std::size_t done = 0;
  for (std::size_t i = 0; i < links_.size() && !stopped;) {
    const auto link = links_[i];
    done += link->look();
    if (i < links_.size() && links_[i] == link) ++i;
  }
  return done;
}

std::size_t PolledLinks::arm(const bool& stopped) {
  std::size_t done = 0;
  while (!links_.empty() && !stopped) {
    const auto link = std::move(links_.back());
    links_.pop_back();
    done += link->arm();
  }
  return done;
}

}  // namespace weft::message::detail
