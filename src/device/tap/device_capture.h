// The capture of a device, which may begin and end while connections exist. What moves bytes
// compares the number of the current capture with that of the capture that it takes part in: see
// StreamSocket.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/tap/capture_tap.h"

namespace weft::device {

// Thread-safe. At most one capture of a device at a time.
class DeviceCapture {
 public:
  DeviceCapture() = default;
  // With a capture from the beginning; null: with none.
  explicit DeviceCapture(std::shared_ptr<CaptureFile> file);

  // Changes with each beginning and end. Never 0 once there was a capture.
  [[nodiscard]] std::uint32_t number() const { return number_.load(std::memory_order_acquire); }
  // The same, for those who look at it with each system call. It lives as long as this object.
  [[nodiscard]] const std::atomic<std::uint32_t>& changes() const { return number_; }
  [[nodiscard]] bool running() const { return running_.load(std::memory_order_acquire); }
  // The current capture, or null.
  [[nodiscard]] std::shared_ptr<CaptureFile> file();

  // Begins the capture that `open` makes, or returns its error. If one is running already, `open`
  // is not called, and the result is null. A capture that has ended by an error makes room.
  using Opened = Result<std::shared_ptr<CaptureFile>, std::string>;
  [[nodiscard]] Opened start(const std::function<Opened()>& open);
  // Ends this capture, and does nothing if it has ended. False if its own function calls this.
  bool stop(CaptureFile& file);
  // Writes a remark, if anything is captured: see write_comment().
  void comment(std::string_view text);

  // For the child of fork(): takes no lock.
  void forget_after_fork();

 private:
  void take(std::shared_ptr<CaptureFile> file);

  std::mutex mutex_;
  std::shared_ptr<CaptureFile> file_;
  std::atomic<CaptureFile*> for_child_{nullptr};  // what file_ points to
  std::atomic<bool> running_{false};
  std::atomic<std::uint32_t> number_{0};
};

}  // namespace weft::device
