// What one process has of the embedded device: the device itself, and the connection manager on
// top. Built when it is first used, never destroyed: the progress thread and the program's exit
// handlers may use it to the last moment.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "cm/cm.h"
#include "device/context.h"
#include "device/device.h"
#include "provider/statistics.h"

namespace weft::provider {

class Process {
 public:
  // The one of this process. After fork() the child starts with a new one.
  static Process& current();

  // Null with errno ENODEV where the device cannot be made; the reason is said once on standard
  // error.
  [[nodiscard]] device::Device* device();
  [[nodiscard]] cm::Manager& manager() { return manager_; }

  // That of the device, if this process has made it.
  [[nodiscard]] static device::Engine* engine();

  // What all rdma_cm ids share.
  [[nodiscard]] device::Context* shared_context();
  [[nodiscard]] bool is_shared(const device::Context* context) const {
    return context == shared_context_.get();
  }

  // False for what was made before a fork(), seen from the child.
  [[nodiscard]] static bool owns(ibv_context* context);

 private:
  Process();
  void build();
  void keep_statistics();
  void complain(const std::string& sentence);
  static void after_fork_in_child();

  std::mutex mutex_;
  std::unique_ptr<device::Device> device_;
  std::atomic<device::Engine*> engine_{nullptr};  // of device_
  std::unique_ptr<device::Context> shared_context_;
  std::shared_ptr<Statistics> statistics_;
  std::string complaint_;
  cm::Manager manager_;
};

// A context with everything that C programs reach through it.
[[nodiscard]] std::unique_ptr<device::Context> make_context(device::Device& device);

}  // namespace weft::provider
