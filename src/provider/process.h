// The embedded device of a process, and the connection manager on top of it. Built at its first use
// and never destroyed: the progress thread and the program's exit handlers may use it until the
// process ends.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cm/cm.h"
#include "device/context.h"
#include "device/device.h"
#include "provider/live_server.h"
#include "provider/other_devices.h"
#include "provider/refusal.h"
#include "provider/statistics.h"
#include "provider/sysfs_counters.h"
#include "weft/device_options.hpp"

namespace weft::provider {

// Thread-safe.
class Process {
 public:
  // The instance of this process. After fork(2) the child starts with a new one. Each program of a
  // simulation has one of its own.
  static Process& current();
  // Only for programs of a simulation.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Null with errno ENODEV if the device cannot be made. The reason is written to standard error
  // once.
  [[nodiscard]] device::Device* device();
  [[nodiscard]] cm::Manager& manager() { return manager_; }

  // The engine of the device; null if this process has made no device.
  [[nodiscard]] static device::Engine* engine();

  // The counters below /sys/class/infiniband are up to date then. Nothing happens if this process
  // has made no device.
  static void publish_counters();

  // Makes the device and starts its thread: Engine::start(). Does nothing if there can be none.
  static void start_thread();
  // The trace of the device; null if this process has none.
  [[nodiscard]] static device::TraceFile* trace();

  // The context that all rdma_cm ids share. Null if there is no device.
  [[nodiscard]] device::Context* shared_context();
  [[nodiscard]] bool is_shared(const device::Context* context) const {
    return context == shared_context_.get();
  }

  // Of the device that the process shares.
  [[nodiscard]] bool is_default(ibv_context* context) {
    return &device::Context::of(context)->device() == device_.get();
  }

  // Table::configure() and Table::open_configured().
  // Why there is no device although one was needed; else empty.
  [[nodiscard]] std::string why_no_device();
  // Whether the device that the process shares has no thread of its own.
  [[nodiscard]] bool is_manual();
  int configure(const DeviceOptions& options, std::string& why);
  [[nodiscard]] device::Context* open_configured(const DeviceOptions& options, std::string& why);
  // Counts a client in the statistics that was closed before the device knew it.
  void count_refusal(Refusal why);
  [[nodiscard]] OtherDevices& other_devices() { return other_devices_; }

  // False in a child for a context that was made before fork(2).
  [[nodiscard]] static bool owns(ibv_context* context);

 private:
  Process();
  // Null where none was made.
  [[nodiscard]] static Process* existing();
  [[nodiscard]] bool has(const device::Device& device);
  // Deletes it, unless objects of its program are left.
  static void retire(Process* process);
  [[nodiscard]] bool is_in_use();
  void build();
  void keep_statistics();
  void begin_link();
  void finish_at_exit();
  void finish();
  void complain(const std::string& sentence);
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  std::mutex mutex_;
  std::unique_ptr<device::Device> device_;
  std::atomic<device::Engine*> engine_{nullptr};    // of device_
  std::atomic<device::TraceFile*> trace_{nullptr};  // likewise
  std::unique_ptr<device::Context> shared_context_;
  std::shared_ptr<Statistics> statistics_;
  device::Refusals early_refusals_;          // counted before there was a device
  std::shared_ptr<LiveServer> live_server_;  // null where it cannot be had
  std::shared_ptr<SysfsCounters> sysfs_counters_;
  std::atomic<SysfsCounters*> published_{nullptr};  // the same
  std::optional<device::Settings> configured_;      // nothing: the environment sets them
  OtherDevices other_devices_;
  std::string complaint_;  // the last one, so that it is not repeated
  cm::Manager manager_;
};

// Makes a context with the members set that C programs use directly.
[[nodiscard]] std::unique_ptr<device::Context> make_context(device::Device& device);

}  // namespace weft::provider
