// Where a capture goes: to a function of the program, or to a file, which is opened, locked and
// written with direct system calls, so that a preloaded library that replaces sockets and files
// does not see the device's own I/O.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace weft::device {

// Thread-safe except for opening and destroying.
class CaptureWriter {
 public:
  // Opens PATH, or PATH.<pid> if another process writes PATH, and truncates it. FIFOs and devices
  // work too. A failure sets errno as well.
  [[nodiscard]] static Result<std::unique_ptr<CaptureWriter>, std::string> open(
      const std::string& path);
  // Passes each write to `function`, as whole pcapng blocks. What it throws ends the capture.
  [[nodiscard]] static std::unique_ptr<CaptureWriter> to(std::function<void(Bytes)> function);
  ~CaptureWriter();
  CaptureWriter(const CaptureWriter&) = delete;
  CaptureWriter& operator=(const CaptureWriter&) = delete;

  // Empty if the capture goes to a function.
  [[nodiscard]] const std::string& path() const { return path_; }
  // The number of packets in the capture, and of those that are not in it because a write failed.
  [[nodiscard]] std::uint64_t packets() const { return packets_; }
  [[nodiscard]] std::uint64_t packets_lost() const { return lost_; }
  // False after a failure and after stop() or forget(): building packets is useless then.
  [[nodiscard]] bool writable() const { return open_; }
  void count_lost(std::size_t packets) {
    if (!stopped_) lost_ += packets;
  }

  // Numbers the connections of this file: 1, 2, 3, …
  [[nodiscard]] std::uint32_t next_connection() { return ++connections_; }

  // Appends complete blocks with `packets` packets, in one system call unless the kernel stops
  // early. Modifies `vectors`. The first failure ends the capture: it is logged, and a regular file
  // is truncated to its last complete block.
  void write(std::span<iovec> vectors, std::size_t packets);

  // Ends the capture. When it returns, nothing more is written and the function is not running.
  // False if the function itself calls this: nothing has changed then.
  bool stop();
  // For the child of fork(): closes without the lock, which another thread may have held forever.
  void forget();
  // Whether forget() was called: then locks around this object must not be taken either.
  [[nodiscard]] bool forgotten() const { return forgotten_; }

 private:
  CaptureWriter(int descriptor, std::string path, bool regular);
  explicit CaptureWriter(std::function<void(Bytes)> function);
  void close();
  // Both return the sentence for a failure, or nothing.
  [[nodiscard]] std::string write_file(std::span<iovec> vectors);
  [[nodiscard]] std::string call_function(std::span<const iovec> vectors);

  std::mutex mutex_;
  std::atomic<bool> open_{true};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> forgotten_{false};
  std::atomic<std::uint64_t> packets_ = 0;
  std::atomic<std::uint64_t> lost_ = 0;
  std::atomic<std::uint32_t> connections_ = 0;
  const std::function<void(Bytes)> function_;  // empty: to the file
  std::vector<std::byte> joined_;              // for the function
  const int descriptor_;                       // closed unless open_
  const std::string path_;
  const bool regular_;        // can be truncated
  const bool may_signal_;     // a failing write may raise SIGPIPE or SIGXFSZ
  std::int64_t written_ = 0;  // bytes of successful calls
};

}  // namespace weft::device
