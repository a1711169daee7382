// The file below a capture: opened, locked and written with raw system calls, so that an interposer
// of sockets and files never sees the device's own I/O.
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

class CaptureWriter {
 public:
  // Opens PATH, or PATH.<pid> where PATH has a writer, and empties it. FIFOs and devices work too.
  [[nodiscard]] static Result<std::unique_ptr<CaptureWriter>, std::string> open(
      const std::string& path);
  ~CaptureWriter();
  CaptureWriter(const CaptureWriter&) = delete;
  CaptureWriter& operator=(const CaptureWriter&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  // Packets that are not in the file because writing it failed.
  [[nodiscard]] std::uint64_t packets_lost() const { return lost_; }
  // False after a failure and after forget(): then there is no point in building packets.
  [[nodiscard]] bool writable() const { return descriptor_ >= 0; }
  void count_lost(std::size_t packets) { lost_ += packets; }

  // 1, 2, 3, … : tells connections of this file apart.
  [[nodiscard]] std::uint32_t next_connection() { return ++connections_; }

  // Appends whole blocks, holding `packets` packets, with one system call as long as the kernel
  // takes them at once. Uses `vectors` up. The first failure ends the capture: it is said on
  // standard error, and a regular file is cut back to its last complete block.
  void write(std::span<iovec> vectors, std::size_t packets);

  // Closes without a lock: after fork() another thread may have held it for good.
  void forget();

 private:
  CaptureWriter(int descriptor, std::string path, bool regular);
  void fail(int error);

  std::mutex mutex_;
  std::atomic<int> descriptor_;
  std::atomic<std::uint64_t> lost_ = 0;
  std::atomic<std::uint32_t> connections_ = 0;
  const std::string path_;
  const bool regular_;        // can be cut back
  const bool may_signal_;     // a failing write raises SIGPIPE or SIGXFSZ
  std::int64_t written_ = 0;  // bytes of complete calls
};

}  // namespace weft::device
