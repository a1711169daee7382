// The file behind a capture: opened, locked and written with direct system calls, so that a
// preloaded library that replaces sockets and files does not see the device's own I/O.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/result.h"

namespace weft::device {

// Thread-safe except for opening and destroying.
class CaptureWriter {
 public:
  // Opens PATH, or PATH.<pid> if another process writes PATH, and truncates it. FIFOs and devices
  // work too.
  [[nodiscard]] static Result<std::unique_ptr<CaptureWriter>, std::string> open(
      const std::string& path);
  ~CaptureWriter();
  CaptureWriter(const CaptureWriter&) = delete;
  CaptureWriter& operator=(const CaptureWriter&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  // The number of packets that are not in the file because a write failed.
  [[nodiscard]] std::uint64_t packets_lost() const { return lost_; }
  // False after a failure and after forget(): building packets is useless then.
  [[nodiscard]] bool writable() const { return descriptor_ >= 0; }
  void count_lost(std::size_t packets) { lost_ += packets; }

  // Numbers the connections of this file: 1, 2, 3, …
  [[nodiscard]] std::uint32_t next_connection() { return ++connections_; }

  // Appends complete blocks with `packets` packets, in one system call unless the kernel stops
  // early. Modifies `vectors`. The first failure ends the capture: it is reported on standard
  // error, and a regular file is truncated to its last complete block.
  void write(std::span<iovec> vectors, std::size_t packets);

  // Closes without the lock: after fork() another thread may have held it forever.
  void forget();

 private:
  CaptureWriter(int descriptor, std::string path, bool regular);
  void fail(int error);

  std::mutex mutex_;
  std::atomic<int> descriptor_;
  std::atomic<std::uint64_t> lost_ = 0;
  std::atomic<std::uint32_t> connections_ = 0;
  const std::string path_;
  const bool regular_;        // can be truncated
  const bool may_signal_;     // a failing write may raise SIGPIPE or SIGXFSZ
  std::int64_t written_ = 0;  // bytes of successful calls
};

}  // namespace weft::device
