#include "faults/link.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "faults/assignments.h"
#include "faults/numbers.h"

namespace weft::faults {
namespace {

// What TCP carries in one packet on Ethernet.
constexpr std::uint64_t segment_bytes = 1448;
// The shortest retransmission timeout of Linux.
constexpr std::uint64_t retransmission_ns = 200'000'000;
// Longer ones would only stop a program. The product with a number of bytes stays within 64 bits.
constexpr std::uint64_t longest_ns = 60'000'000'000;

constexpr std::array all_link_names{
    LinkName{"latency=DURATION",
             "The time in each direction, up to 60s: an answer comes after twice this time."},
    LinkName{"jitter=DURATION",
             "Up to this much more, at random. The order within a connection stays as it is."},
    LinkName{"rate=RATE",
             "Bits per second in each direction, in kbit, mbit or gbit, for each connection."},
    LinkName{"loss-stall=SHARE",
             "The share of lost packets, as 0.1% or 0.001, at most half. A connection stalls for "
             "200 ms and the latency, as TCP sends a lost segment again after its timeout. A "
             "datagram is lost."},
    LinkName{"seed=NUMBER", "Repeats the random choices of a run, which prints its seed."},
};

bool read_number(std::string_view text, double& value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end == text.data() + text.size();
}

bool read_time(std::string_view text, std::uint64_t& ns) {
  return read_duration(text, ns) && ns <= longest_ns;
}

bool read_rate(std::string_view text, std::uint64_t& bits) {
  struct Unit {
    std::string_view name;
    std::uint64_t factor;
  };
  for (const Unit unit :
       {Unit{"kbit", 1'000}, Unit{"mbit", 1'000'000}, Unit{"gbit", 1'000'000'000}}) {
    if (!text.ends_with(unit.name)) continue;
    std::uint64_t count = 0;
    text.remove_suffix(unit.name.size());
    if (!read_count(text, 1, count) || count > 1'000'000) return false;
    bits = count * unit.factor;
    return true;
  }
  return false;
}

bool read_share(std::string_view text, double& share) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  if (!read_number(text, share)) return false;
  if (percent) share /= 100;
  // In this form NaN is refused as well, since every comparison with it is false.
  return share >= 0 && share <= 0.5;
}

bool read_seed(std::string_view text, Link& link) {
  std::uint64_t seed = 0;
  if (!read_count(text, 0, seed)) return false;
  link.seed = seed;
  return true;
}

struct Reader {
  std::string_view name;
  std::string_view allowed;
  bool (*read)(std::string_view value, Link& link);
};

constexpr std::string_view a_time = "a duration in ns, us, ms or s, at most 60s";

constexpr std::array readers{
    Reader{"latency", a_time,
           [](std::string_view text, Link& link) { return read_time(text, link.latency_ns); }},
    Reader{"jitter", a_time,
           [](std::string_view text, Link& link) { return read_time(text, link.jitter_ns); }},
    Reader{"rate", "a number with kbit, mbit or gbit, such as 10gbit",
           [](std::string_view text, Link& link) { return read_rate(text, link.bits_per_second); }},
    Reader{"loss-stall", "a share such as 0.1% or 0.001, at most half",
           [](std::string_view text, Link& link) { return read_share(text, link.loss); }},
    Reader{"seed", "a whole number", read_seed},
};

std::optional<Mistake> apply(const Assignment& given, Link& link) {
  const auto reader = std::ranges::find(readers, given.name.text, &Reader::name);
  if (reader == readers.end()) {
    return Mistake{"must be one of latency=, jitter=, rate=, loss-stall=, seed=",
                   given.name.offset};
  }
  if (reader->read(given.value.text, link)) return std::nullopt;
  return Mistake{std::string(reader->name) + "= must be " + std::string(reader->allowed),
                 given.value.offset};
}

}  // namespace

std::span<const LinkName> link_names() {
  return all_link_names;
}

Result<Link, std::string> parse_link(std::string_view text) {
  std::vector<Assignment> given;
  if (const auto mistake = read_assignments(text, given)) return explain(*mistake, text);
  Link link;
  for (const Assignment& each : given) {
    if (const auto mistake = apply(each, link)) return explain(*mistake, text);
  }
  return link;
}

// SplitMix64, from 0 up to 1.
double LinkSchedule::draw() {
  std::uint64_t z = generator_ += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return std::ldexp(static_cast<double>((z ^ (z >> 31)) >> 11), -53);
}

// When the last bit is on the link, which carries one thing after the other.
std::uint64_t LinkSchedule::leave_ns(std::uint64_t now_ns, std::size_t bytes) {
  free_ns_ = std::max(free_ns_, now_ns);
  if (link_.bits_per_second > 0) {
    const double seconds =
        static_cast<double>(bytes) * 8 / static_cast<double>(link_.bits_per_second);
    free_ns_ += static_cast<std::uint64_t>(std::ceil(seconds * 1e9));
  }
  return free_ns_;
}

// Two numbers are drawn for each segment of the stream that begins in these bytes, so that the
// sequence does not depend on how the stream is divided.
std::uint64_t LinkSchedule::stream_due_ns(std::uint64_t now_ns, std::size_t bytes) {
  const std::uint64_t end = position_ + bytes;
  std::uint64_t lost = 0;
  const std::uint64_t first = (position_ + segment_bytes - 1) / segment_bytes;
  for (std::uint64_t segment = first; segment * segment_bytes < end; ++segment) {
    jitter_ns_ = static_cast<std::uint64_t>(draw() * static_cast<double>(link_.jitter_ns));
    if (draw() < link_.loss) ++lost;
  }
  position_ = end;
  lost_ += lost;
  const std::uint64_t stall_ns = lost * (retransmission_ns + link_.latency_ns);
  last_ns_ = std::max(last_ns_, leave_ns(now_ns, bytes) + link_.latency_ns + jitter_ns_) + stall_ns;
  return last_ns_;
}

std::optional<std::uint64_t> LinkSchedule::packet_due_ns(std::uint64_t now_ns, std::size_t bytes) {
  const double jitter = draw() * static_cast<double>(link_.jitter_ns);
  const bool lost = draw() < link_.loss;
  // A packet that is lost on the way has occupied the link as well.
  const std::uint64_t left_ns = leave_ns(now_ns, bytes);
  if (lost) {
    ++lost_;
    return std::nullopt;
  }
  last_ns_ = std::max(last_ns_, left_ns + link_.latency_ns + static_cast<std::uint64_t>(jitter));
  return last_ns_;
}

}  // namespace weft::faults
