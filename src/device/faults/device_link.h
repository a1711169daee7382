// The slower network that the user of a device has asked for (Settings::link). A device without one
// has none of these.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "device/faults/stream_link.h"
#include "device/tap/device_capture.h"
#include "faults/link.h"

namespace weft::device {

// Thread-safe.
class DeviceLink {
 public:
  // `seed` is used if the user names none. Losses are noted in the capture, and with `verbose` each
  // is printed.
  DeviceLink(const faults::Link& link, std::uint64_t seed, std::shared_ptr<DeviceCapture> capture,
             bool verbose);

  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  // The link of a connection that begins now. Each has random choices of its own, which depend on
  // the number of connections before it.
  [[nodiscard]] std::unique_ptr<StreamLink> stream() {
    return std::make_unique<StreamLink>(link_, next_seed(), counters_);
  }
  [[nodiscard]] faults::LinkSchedule packets() { return {link_, next_seed()}; }

  [[nodiscard]] const faults::Link& link() const { return link_; }
  [[nodiscard]] LinkCounters& counters() { return counters_; }

 private:
  [[nodiscard]] std::uint64_t next_seed() {
    constexpr std::uint64_t apart = 0xD1342543DE82EF95;  // odd: all products differ
    return seed_ + apart * ++links_;
  }

  const faults::Link link_;
  const std::uint64_t seed_;
  std::atomic<std::uint64_t> links_{0};
  LinkCounters counters_;
};

}  // namespace weft::device
