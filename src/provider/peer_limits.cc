#include "provider/peer_limits.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "faults/assignments.h"
#include "faults/mistake.h"
#include "faults/numbers.h"

namespace weft::provider {
namespace {

using device::Settings;
using faults::Assignment;
using faults::Mistake;

enum class Unit : std::uint8_t { places, time, bytes };

struct PeerLimit {
  std::string_view name;
  Unit unit;
  void (*set)(Settings& settings, std::uint64_t value);  // places, nanoseconds or bytes
};

constexpr std::array names{
    PeerLimit{
        "half_open", Unit::places,
        [](Settings& settings, std::uint64_t value) { settings.strangers.half_open = value; }},
    PeerLimit{"refused", Unit::places,
              [](Settings& settings, std::uint64_t value) { settings.strangers.refused = value; }},
    PeerLimit{
        "first_byte", Unit::time,
        [](Settings& settings, std::uint64_t value) { settings.strangers.first_byte_ns = value; }},
    PeerLimit{
        "handshake", Unit::time,
        [](Settings& settings, std::uint64_t value) { settings.strangers.handshake_ns = value; }},
    PeerLimit{"unanswered", Unit::time,
              [](Settings& settings, std::uint64_t value) { settings.min_retry_time_ns = value; }},
    PeerLimit{"hold_bytes", Unit::bytes,
              [](Settings& settings, std::uint64_t value) {
                settings.hold_bytes = static_cast<std::uint32_t>(value);
              }},
};

bool is_within(std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  return value >= least && value <= most;
}

bool read_value(Unit unit, std::string_view text, std::uint64_t& value) {
  constexpr std::uint64_t ms = 1'000'000;
  using namespace peer_limits;
  switch (unit) {
    case Unit::places:
      return faults::read_count(text, 0, value) && is_within(value, least_places, most_places);
    case Unit::time:
      return faults::read_duration(text, value) && is_within(value, least_ms * ms, most_ms * ms);
    case Unit::bytes:
      return (faults::read_count(text, 0, value) || faults::read_amount(text, value)) &&
             value <= most_held_bytes;
  }
  return false;
}

std::string_view accepted(Unit unit) {
  switch (unit) {
    case Unit::places:
      return "a number from 4 to 65536";
    case Unit::time:
      return "a time from 1ms to 3600s";
    case Unit::bytes:
      return "a number of bytes up to 1GiB, such as 64KiB";
  }
  return {};
}

std::optional<Mistake> apply(const Assignment& given, Settings& settings) {
  const auto limit = std::ranges::find(names, given.name.text, &PeerLimit::name);
  if (limit == names.end()) {
    return Mistake{"must be one of " + faults::listed_names(names), given.name.offset};
  }
  std::uint64_t value = 0;
  if (!read_value(limit->unit, given.value.text, value)) {
    return Mistake{std::string(limit->name) + "= must be " + std::string(accepted(limit->unit)),
                   given.value.offset};
  }
  limit->set(settings, value);
  return std::nullopt;
}

}  // namespace

std::string read_peer_limits(std::string_view text, Settings& settings) {
  using namespace peer_limits;
  static_assert(least_places == 4 && most_places == 65536 && least_ms == 1 &&
                    most_ms == 3'600'000 && most_held_bytes == 1 << 30,
                "accepted() names them");
  std::vector<Assignment> given;
  auto mistake = faults::read_assignments(text, given);
  for (auto each = given.begin(); !mistake && each != given.end(); ++each) {
    mistake = apply(*each, settings);
  }
  return mistake ? faults::explain(*mistake, text) : std::string();
}

}  // namespace weft::provider
