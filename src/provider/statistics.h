// WEFT_STATS: the counters of a process in a file, as JSON, when it exits and at SIGUSR2.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "device/device.h"

namespace weft::provider {

// {"version": ..., "queue_pairs": [...], ...}
[[nodiscard]] std::string to_json(const device::StatisticsRegistry::Snapshot& snapshot,
                                  const char* occasion);

class Statistics : public device::Pollable, public std::enable_shared_from_this<Statistics> {
 public:
  // The file belongs to one process at a time: another one that runs meanwhile writes FILE.PID. The
  // error is a sentence.
  [[nodiscard]] static Result<std::shared_ptr<Statistics>, std::string> open(
      device::Device& device);
  ~Statistics() override;
  Statistics(const Statistics&) = delete;
  Statistics& operator=(const Statistics&) = delete;

  // From now on also at SIGUSR2, unless the program handles or ignores that itself: then it is the
  // program's, as it is from the moment on when it installs a handler of its own.
  void listen_for_signal();
  void write(const char* occasion) noexcept;

  // In the child after fork(): the parent's file is none of its business.
  void abandon_after_fork();

  void on_ready(std::uint32_t epoll_events) override;

 private:
  Statistics(device::Device& device, int file) : device_(device), file_(file) {}

  device::Device& device_;
  int file_;
  int wake_ = -1;  // the signal handler writes to it
  std::mutex writing_;
};

}  // namespace weft::provider
