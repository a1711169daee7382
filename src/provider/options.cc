#include "provider/options.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "device/settings.h"
#include "provider/environment.h"
#include "provider/peer_limits.h"

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
    case DeviceOptions::SameHost::staged:
      return device::SameHost::staged;
    case DeviceOptions::SameHost::automatic:
      break;
  }
  return device::SameHost::automatic;
}

device::PtracerMode to_device(DeviceOptions::Ptracer ptracer) {
  switch (ptracer) {
    case DeviceOptions::Ptracer::any:
      return device::PtracerMode::any;
    case DeviceOptions::Ptracer::off:
      return device::PtracerMode::off;
    case DeviceOptions::Ptracer::peer:
      break;
  }
  return device::PtracerMode::peer;
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

using Milliseconds = std::optional<std::chrono::milliseconds>;

// Reads the options one by one, and keeps the first one that is wrong.
class Reading {
 public:
  [[nodiscard]] WrongOption result() && { return std::move(wrong_); }

  void text(const char* name, const std::string& error) {
    if (!error.empty()) note(name, error, {}, {});
  }
  void number(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most,
              std::string_view unit = {}) {
    if (value >= least && value <= most) return;
    note(name,
         std::to_string(value) + std::string(unit) + " is not within " + std::to_string(least) +
             " to " + std::to_string(most) + std::string(unit),
         value, value < least ? least : most);
  }
  // A value that is no enumerator, as only a cast can make it.
  void enumerator(const char* name, std::uint8_t value, std::uint8_t last) {
    number(name, value, 0, last);
  }
  void time(const char* name, const Milliseconds& value, std::uint64_t& target_ns) {
    if (!value) return;
    const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(value->count(), 0));
    number(name, count, peer_limits::least_ms, peer_limits::most_ms, " ms");
    target_ns = count * 1'000'000;
  }

 private:
  void note(const char* name, const std::string& problem, std::optional<std::uint64_t> requested,
            std::optional<std::uint64_t> limit) {
    if (!wrong_.sentence.empty()) return;
    wrong_ = {
        .sentence = std::string(name) + ": " + problem,
        .detail = {
            .object = "device options", .attribute = name, .requested = requested, .limit = limit}};
  }

  WrongOption wrong_;
};

struct AdapterField {
  std::optional<std::uint64_t> DeviceLimits::*member;
  faults::Capability capability;
};

constexpr std::array adapter_fields{
    AdapterField{&DeviceLimits::max_qp, faults::Capability::queue_pairs},
    AdapterField{&DeviceLimits::max_qp_wr, faults::Capability::work_requests},
    AdapterField{&DeviceLimits::max_sge, faults::Capability::slices},
    AdapterField{&DeviceLimits::max_inline, faults::Capability::inline_bytes},
    AdapterField{&DeviceLimits::max_cq, faults::Capability::completion_queues},
    AdapterField{&DeviceLimits::max_cqe, faults::Capability::completions},
    AdapterField{&DeviceLimits::max_mr, faults::Capability::regions},
    AdapterField{&DeviceLimits::max_mr_size, faults::Capability::region_bytes},
    AdapterField{&DeviceLimits::max_mw, faults::Capability::windows},
    AdapterField{&DeviceLimits::max_pd, faults::Capability::domains},
    AdapterField{&DeviceLimits::max_srq, faults::Capability::shared_receive_queues},
    AdapterField{&DeviceLimits::max_srq_wr, faults::Capability::shared_receives},
    AdapterField{&DeviceLimits::max_ah, faults::Capability::address_handles},
    AdapterField{&DeviceLimits::max_qp_rd_atom, faults::Capability::read_depth},
};

void read_adapter(const DeviceLimits& limits, faults::AdapterLimits& adapter, Reading& reading) {
  const auto names = faults::capability_names();
  for (const AdapterField& field : adapter_fields) {
    const auto& value = limits.*field.member;
    if (!value) continue;
    const faults::CapabilityName& name = names[static_cast<std::size_t>(field.capability)];
    reading.number(("limits." + std::string(name.name)).c_str(), *value, name.least, name.most);
    adapter.restrict_to(field.capability, *value);
  }
  if (limits.atomics) adapter.restrict_to(faults::Capability::atomics, *limits.atomics ? 1 : 0);
  if (limits.immediates)
    adapter.restrict_to(faults::Capability::immediates, *limits.immediates ? 1 : 0);
}

void read_limits(const DeviceLimits& limits, device::Settings& settings, Reading& reading) {
  using peer_limits::least_places;
  using peer_limits::most_places;
  read_adapter(limits, settings.adapter, reading);
  if (limits.half_open) {
    reading.number("limits.half_open", *limits.half_open, least_places, most_places);
    settings.strangers.half_open = *limits.half_open;
  }
  if (limits.refused) {
    reading.number("limits.refused", *limits.refused, least_places, most_places);
    settings.strangers.refused = *limits.refused;
  }
  reading.time("limits.first_byte", limits.first_byte, settings.strangers.first_byte_ns);
  if (limits.handshake) {
    reading.time("limits.handshake", limits.handshake, settings.strangers.handshake_ns.emplace());
  }
  reading.time("limits.unanswered", limits.unanswered, settings.min_retry_time_ns);
}

// Options that are texts with a grammar of their own.
void read_texts(const DeviceOptions& options, device::Settings& settings, Reading& reading) {
  if (!options.address.empty()) {
    reading.text("address", check_variable("WEFT_ADDR", options.address).empty()
                                ? std::string()
                                : options.address + " is not a numeric IP address");
  }
  if (!options.faults.empty()) {
    auto rules = faults::parse(options.faults);
    if (rules)
      settings.faults = std::move(*rules);
    else
      reading.text("faults", rules.error());
  }
  if (!options.adapter.empty()) {
    const auto adapter = faults::parse_adapter(options.adapter);
    if (adapter)
      settings.adapter = *adapter;
    else
      reading.text("adapter", adapter.error());
  }
  if (!options.link.empty()) {
    const auto link = faults::parse_link(options.link);
    if (link)
      settings.link = *link;
    else
      reading.text("link", link.error());
  }
}

void check_enumerators(const DeviceOptions& options, Reading& reading) {
  const auto check = [&](const char* name, auto value, auto last) {
    reading.enumerator(name, static_cast<std::uint8_t>(value), static_cast<std::uint8_t>(last));
  };
  check("gids", options.gids, DeviceOptions::Gids::all);
  check("personality", options.personality, DeviceOptions::Personality::ib);
  check("progress", options.progress, DeviceOptions::Progress::manual);
  check("same_host", options.same_host, DeviceOptions::SameHost::staged);
  check("ptracer", options.ptracer, DeviceOptions::Ptracer::off);
}

void read_priority(const DeviceOptions& options, device::Settings& settings, Reading& reading) {
  if (!options.priority) return;
  if (*options.priority < device::first_nice_value || *options.priority > device::last_nice_value) {
    reading.text("priority", std::to_string(*options.priority) + " is no nice value (-20 to 19)");
  }
  settings.progress.priority = options.priority;
}

// What WEFT_LIMITS has changed.
void read_back(const device::Settings& settings, DeviceOptions& options) {
  const device::Settings standard;
  const auto ms = [](std::uint64_t ns) { return std::chrono::milliseconds(ns / 1'000'000); };
  const auto& strangers = settings.strangers;
  DeviceLimits& limits = options.limits;
  if (strangers.half_open != standard.strangers.half_open) {
    limits.half_open = static_cast<std::uint32_t>(strangers.half_open);
  }
  if (strangers.refused != standard.strangers.refused) {
    limits.refused = static_cast<std::uint32_t>(strangers.refused);
  }
  if (strangers.first_byte_ns != standard.strangers.first_byte_ns) {
    limits.first_byte = ms(strangers.first_byte_ns);
  }
  if (strangers.handshake_ns) limits.handshake = ms(*strangers.handshake_ns);
  if (settings.min_retry_time_ns != standard.min_retry_time_ns) {
    limits.unanswered = ms(settings.min_retry_time_ns);
  }
  if (settings.hold_bytes != standard.hold_bytes) options.hold_bytes = settings.hold_bytes;
}

}  // namespace

WrongOption to_settings(const DeviceOptions& options, device::Settings& settings) {
  Reading reading;
  check_enumerators(options, reading);
  settings.address = options.address;
  settings.gids = to_device(options.gids);
  settings.personality = to_device(options.personality);
  settings.progress.mode = to_device(options.progress);
  settings.same_host = to_device(options.same_host);
  settings.reach.own_memory = options.own_memory;
  settings.reach.checked = !options.check.empty() && options.check != "0";
  settings.reach.ptracer = to_device(options.ptracer);
  settings.crc = options.crc;
  settings.strict_crc = options.strict_crc;
  settings.acknowledge = options.acknowledge;
  settings.strict = options.strict;
  settings.other_users = options.other_users;
  settings.responder_first = options.responder_first;
  settings.verbose = options.verbose;
  settings.port_offset = options.port_offset;
  read_priority(options, settings, reading);
  settings.capture_path = options.capture;
  settings.stats_path = options.statistics;
  settings.trace_path = options.trace;
  if (options.hold_bytes) {
    reading.number("hold_bytes", *options.hold_bytes, 0, peer_limits::most_held_bytes);
    settings.hold_bytes = *options.hold_bytes;
  }
  read_texts(options, settings, reading);
  read_limits(options.limits, settings, reading);  // behind the text of the same limits
  return std::move(reading).result();
}

WrongOption check_options(const DeviceOptions& options) {
  device::Settings unused;
  return to_settings(options, unused);
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
      settings.progress.mode,
      {Options::Progress::automatic, Options::Progress::thread, Options::Progress::manual});
  options.same_host =
      from_device(settings.same_host, {Options::SameHost::automatic, Options::SameHost::off,
                                       Options::SameHost::required, Options::SameHost::staged});
  options.own_memory = settings.reach.own_memory;
  options.ptracer =
      from_device(settings.reach.ptracer,
                  {Options::Ptracer::peer, Options::Ptracer::any, Options::Ptracer::off});
  options.crc = settings.crc;
  options.strict_crc = settings.strict_crc;
  options.acknowledge = settings.acknowledge;
  options.strict = settings.strict;
  options.other_users = settings.other_users;
  options.responder_first = settings.responder_first;
  options.verbose = settings.verbose;
  options.port_offset = settings.port_offset;
  options.priority = settings.progress.priority;
  options.capture = settings.capture_path;
  options.statistics = settings.stats_path;
  options.trace = settings.trace_path;
  read_back(settings, options);
  options.faults = text_of("WEFT_FAULT");
  options.adapter = text_of("WEFT_ADAPTER");
  options.link = text_of("WEFT_LINK");
  options.check = text_of("WEFT_CHECK");
  return {};
}

}  // namespace weft::provider
