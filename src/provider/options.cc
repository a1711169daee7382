#include "provider/options.h"

#include <cstdlib>
#include <utility>

#include "device/settings.h"
#include "provider/environment.h"

namespace weft::provider {
namespace {

// Both enumerations have the same names in another order.
device::Personality to_device(DeviceOptions::Personality personality) {
  switch (personality) {
    case DeviceOptions::Personality::iwarp:
      return device::Personality::iwarp;
    case DeviceOptions::Personality::ib:
      return device::Personality::ib;
    case DeviceOptions::Personality::roce:
      break;
  }
  return device::Personality::roce;
}

device::ProgressMode to_device(DeviceOptions::Progress progress) {
  switch (progress) {
    case DeviceOptions::Progress::thread:
      return device::ProgressMode::thread;
    case DeviceOptions::Progress::manual:
      return device::ProgressMode::manual;
    case DeviceOptions::Progress::automatic:
      break;
  }
  return device::ProgressMode::automatic;
}

device::GidTable to_device(DeviceOptions::Gids gids) {
  switch (gids) {
    case DeviceOptions::Gids::one:
      return device::GidTable::one;
    case DeviceOptions::Gids::all:
      return device::GidTable::all;
    case DeviceOptions::Gids::standard:
      break;
  }
  return device::GidTable::standard;
}

device::SameHost to_device(DeviceOptions::SameHost same_host) {
  switch (same_host) {
    case DeviceOptions::SameHost::off:
      return device::SameHost::off;
    case DeviceOptions::SameHost::required:
      return device::SameHost::required;
    case DeviceOptions::SameHost::automatic:
      break;
  }
  return device::SameHost::automatic;
}

// The option whose value in the settings is `value`.
template <typename Option, typename Value>
Option from_device(Value value, std::initializer_list<Option> options) {
  for (const Option option : options) {
    if (to_device(option) == value) return option;
  }
  return *options.begin();
}

std::string text_of(const char* variable) {
  const char* const value = secure_getenv(variable);
  return value ? value : "";
}

}  // namespace

std::string to_settings(const DeviceOptions& options, device::Settings& settings) {
  settings.address = options.address;
  settings.gids = to_device(options.gids);
  settings.personality = to_device(options.personality);
  settings.progress = to_device(options.progress);
  settings.same_host = to_device(options.same_host);
  settings.crc = options.crc;
  settings.strict_crc = options.strict_crc;
  settings.acknowledge = options.acknowledge;
  settings.strict = options.strict;
  settings.other_users = options.other_users;
  settings.responder_first = options.responder_first;
  settings.verbose = options.verbose;
  settings.port_offset = options.port_offset;
  settings.capture_path = options.capture;
  settings.stats_path = options.statistics;
  settings.trace_path = options.trace;
  if (options.hold_bytes) settings.hold_bytes = *options.hold_bytes;
  if (!options.faults.empty()) {
    auto rules = faults::parse(options.faults);
    if (!rules) return rules.error();
    settings.faults = std::move(*rules);
  }
  if (!options.adapter.empty()) {
    auto limits = faults::parse_adapter(options.adapter);
    if (!limits) return limits.error();
    settings.adapter = *limits;
  }
  if (!options.link.empty()) {
    auto link = faults::parse_link(options.link);
    if (!link) return link.error();
    settings.link = *link;
  }
  return {};
}

std::string read_environment(DeviceOptions& options) {
  device::Settings settings;
  const std::string wrong = read_environment(settings);
  if (!wrong.empty()) return wrong;
  using Options = DeviceOptions;
  options.address = settings.address;
  options.gids =
      from_device(settings.gids, {Options::Gids::standard, Options::Gids::one, Options::Gids::all});
  options.personality = from_device(
      settings.personality,
      {Options::Personality::roce, Options::Personality::iwarp, Options::Personality::ib});
  options.progress = from_device(
      settings.progress,
      {Options::Progress::automatic, Options::Progress::thread, Options::Progress::manual});
  options.same_host = from_device(
      settings.same_host,
      {Options::SameHost::automatic, Options::SameHost::off, Options::SameHost::required});
  options.crc = settings.crc;
  options.strict_crc = settings.strict_crc;
  options.acknowledge = settings.acknowledge;
  options.strict = settings.strict;
  options.other_users = settings.other_users;
  options.responder_first = settings.responder_first;
  options.verbose = settings.verbose;
  options.port_offset = settings.port_offset;
  options.capture = settings.capture_path;
  options.statistics = settings.stats_path;
  options.trace = settings.trace_path;
  options.faults = text_of("WEFT_FAULT");
  options.adapter = text_of("WEFT_ADAPTER");
  options.link = text_of("WEFT_LINK");
  return {};
}

}  // namespace weft::provider
