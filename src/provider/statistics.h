// WEFT_STATS: writes the counters of a process to a file, at its exit and at SIGUSR2, as JSON
// or, if the name of the file ends in .prom, in the text format of Prometheus.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "base/event_fd.h"
#include "base/result.h"
#include "device/device.h"

namespace weft::provider {

// The JSON text: {"version": ..., "queue_pairs": [...], ...}. The device must have a registry of
// statistics. `occasion`: "exit" or "signal".
[[nodiscard]] std::string to_json(device::Device& device, const char* occasion);
// For `weft top`: live objects, sums of the destroyed ones, latencies as they are taken.
[[nodiscard]] std::string to_live_json(device::Device& device);
// The text format of Prometheus, version 0.0.4, with a line end behind the last sample. The same
// counters and the same condition.
[[nodiscard]] std::string to_prometheus(device::Device& device, const char* occasion);

// Thread-safe.
class Statistics : public device::Pollable, public std::enable_shared_from_this<Statistics> {
 public:
  // Locks the file. A second process that runs at the same time uses FILE.PID, or for FILE.prom
  // FILE.PID.prom. The error is one sentence.
  [[nodiscard]] static Result<std::shared_ptr<Statistics>, std::string> open(
      device::Device& device);
  Statistics(const Statistics&) = delete;
  Statistics& operator=(const Statistics&) = delete;

  // Writes at SIGUSR2 from now on, unless the program handles or ignores that signal. A handler
  // that the program installs later replaces this one.
  void listen_for_signal();
  // Replaces the content of the file.
  void write(const char* occasion) noexcept;

  // In the child after fork(2): closes the parent's file without writing.
  void abandon_after_fork();

  void on_ready(std::uint32_t epoll_events) override;

 private:
  using Format = std::string (*)(device::Device& device, const char* occasion);

  Statistics(device::Device& device, Descriptor file, Format format)
      : device_(device), file_(std::move(file)), format_(format) {}

  device::Device& device_;
  Descriptor file_;
  const Format format_;
  std::optional<EventFd> wake_;  // the signal handler writes to it
  std::mutex writing_;
};

}  // namespace weft::provider
