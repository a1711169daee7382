// Devices of this process beside the one that all of it shares: each has its own options and one
// context, and is destroyed with it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/context.h"
#include "device/device.h"
#include "provider/live_server.h"
#include "provider/statistics.h"

namespace weft::provider {

// Thread-safe.
class OtherDevices {
 public:
  // Null with errno; `why` is the sentence.
  [[nodiscard]] device::Context* open(const device::Settings& settings, std::string& why);
  [[nodiscard]] bool has(const device::Device& device);
  // Ends a device of this list, and does nothing for any other device. The context of the device
  // must be deleted before.
  void close(device::Device& device);
  void abandon_after_fork();

 private:
  struct Entry {
    std::unique_ptr<device::Device> device;
    std::shared_ptr<Statistics> statistics;
    std::shared_ptr<LiveServer> live_server;
  };

  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::atomic<std::size_t> count_{0};  // of entries_, to be read without the lock
  int last_number_ = 0;                // of the last name: "weft1"
};

}  // namespace weft::provider
