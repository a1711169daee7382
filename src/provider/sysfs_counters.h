// Adds what this process has counted to the files of counters in the folder that looks like /sys
// (sysfs_tree.h), which all processes of the user share, as all programs share those of an adapter.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/device.h"

namespace weft::provider {

// Adds when the process ends, when it reads a counter, and each second while the device has its
// thread, or is driven by the program. While the folder does not exist, because no program has
// asked for it, that costs a system call. A process that is killed loses the last second.
//
// Thread-safe.
class SysfsCounters : public device::Pollable, public std::enable_shared_from_this<SysfsCounters> {
 public:
  // `device` outlives it.
  [[nodiscard]] static std::shared_ptr<SysfsCounters> begin(device::Device& device);

  // Enough for the files to be free, unless a process that changes them is stopped.
  static constexpr int patient = 20;

  // Adds what has been counted since the last time. Where another process is adding, this one tries
  // again after half a millisecond, and leaves it to the next time after so many attempts.
  void publish(int attempts) noexcept;

  void on_ready(std::uint32_t /*epoll_events*/) override {}
  void on_deadline() override;

 private:
  explicit SysfsCounters(device::Device& device);
  void add_to_files(int attempts);

  device::Device& device_;
  std::mutex mutex_;
  std::string folder_;                    // empty until it is needed
  std::vector<std::uint64_t> published_;  // in the order of port_counters()
};

}  // namespace weft::provider
