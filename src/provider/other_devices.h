// Devices of this process beside the one that all of it shares: each has its own options and one
// context, and is destroyed with it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cm/cm.h"
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
  // The manager for rdma_cm on the device of this context; null where that is none of these.
  [[nodiscard]] cm::Manager* manager(device::Context& context);
  // Before the context is deleted. False where ids or channels of the device are left.
  [[nodiscard]] bool close_manager(device::Device& device);
  void abandon_after_fork();
  [[nodiscard]] bool empty() const { return count_ == 0; }

 private:
  struct Entry {
    std::unique_ptr<device::Device> device;
    std::unique_ptr<cm::Manager> manager;  // null until it is needed
    std::shared_ptr<Statistics> statistics;
    std::shared_ptr<LiveServer> live_server;
  };

  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::atomic<std::size_t> count_{0};  // of entries_, to be read without the lock
  int last_number_ = 0;                // of the last name: "weft1"
};

}  // namespace weft::provider
