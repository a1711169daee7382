// Several threads may learn from epoll that a descriptor is readable, but only one at a time reads
// it. A thread that finds another one reading passes its events to that thread and returns at once.
// Thread-safe.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "device/engine.h"

namespace weft::device {

class SoleReader {
 public:
  // `engine` outlives it.
  explicit SoleReader(Engine& engine) : engine_(engine) {}

  // From now on `target` is called for what arrives at `fd`. False: the kernel refuses.
  [[nodiscard]] bool watch(int fd, std::shared_ptr<Pollable> target);
  // To be called before the descriptor is closed.
  void unwatch();
  // EPOLLIN, which it begins with, and EPOLLOUT.
  void watch_for(std::uint32_t events);

  // True: the calling thread reads until end(). False: another one does, and finds `events`.
  [[nodiscard]] bool begin(std::uint32_t events = 0);
  // The same of events that epoll has reported. It does not report them again, as it would without
  // a pause, until the thread that reads calls watch_again().
  [[nodiscard]] bool begin_reported(std::uint32_t events);
  // What was left to the calling thread, which reads.
  [[nodiscard]] std::uint32_t take_left() { return left_.exchange(0); }
  // When it has read all that epoll could report.
  void watch_again();
  // Returns whether something was left that take_left() has not returned.
  [[nodiscard]] bool end();

 private:
  Engine& engine_;
  std::atomic_flag reading_;
  std::atomic<std::uint32_t> left_{0};

  std::mutex mutex_;  // of what follows
  std::uint64_t token_ = 0;
  std::uint32_t events_ = EPOLLIN;
  bool paused_ = false;  // nothing is reported
};

}  // namespace weft::device
