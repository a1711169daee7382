// A slower network: what a link does to the bytes and packets that it carries. `weft help faults`
// describes the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::faults {

struct Link {
  std::uint64_t latency_ns = 0;       // in each direction
  std::uint64_t jitter_ns = 0;        // at most this much more, at random
  std::uint64_t bits_per_second = 0;  // 0: no limit
  double loss = 0;                    // the share of segments and packets that are lost
  std::optional<std::uint64_t> seed{};

  [[nodiscard]] bool active() const {
    return latency_ns > 0 || jitter_ns > 0 || bits_per_second > 0 || loss > 0;
  }
};

struct LinkName {
  std::string_view name;     // with its value, such as "latency=DURATION"
  std::string_view meaning;  // whole sentences, for the help
};
[[nodiscard]] std::span<const LinkName> link_names();

// Reads "latency=50us,jitter=5us,rate=10gbit,loss-stall=0.1%". The error is several lines: what is
// wrong, the list, and a caret below the place.
[[nodiscard]] Result<Link, std::string> parse_link(std::string_view text);

// When what enters one direction of a link leaves it. The same seed and the same bytes in the same
// order meet the same delays and losses, however they are divided into calls.
class LinkSchedule {
 public:
  LinkSchedule(const Link& link, std::uint64_t seed) : link_(link), generator_(seed) {}

  // Of the next bytes of a stream, which TCP retransmits: a lost segment delays all that follows by
  // a retransmission timeout. Never earlier than what was there before.
  [[nodiscard]] std::uint64_t stream_due_ns(std::uint64_t now_ns, std::size_t bytes);
  // Of a packet; nothing: it is lost. Never earlier than the packet before it.
  [[nodiscard]] std::optional<std::uint64_t> packet_due_ns(std::uint64_t now_ns, std::size_t bytes);
  // The number of segments and packets that were lost so far.
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  [[nodiscard]] double draw();
  [[nodiscard]] std::uint64_t leave_ns(std::uint64_t now_ns, std::size_t bytes);

  Link link_;
  std::uint64_t generator_;
  std::uint64_t lost_ = 0;
  std::uint64_t free_ns_ = 0;  // the link is busy until then
  std::uint64_t last_ns_ = 0;  // the latest due time
  std::uint64_t position_ = 0;
  std::uint64_t jitter_ns_ = 0;  // of the present segment
};

}  // namespace weft::faults
