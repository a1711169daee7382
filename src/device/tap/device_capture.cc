#include "device/tap/device_capture.h"

#include <utility>

#include "device/tap/capture_comment.h"

namespace weft::device {

DeviceCapture::DeviceCapture(std::shared_ptr<CaptureFile> file) {
  if (file) take(std::move(file));
}

std::shared_ptr<CaptureFile> DeviceCapture::file() {
  if (!running()) return nullptr;
  const std::lock_guard lock(mutex_);
  return file_;
}

// Opens the file with the lock held, because opening a file empties it.
DeviceCapture::Opened DeviceCapture::start(const std::function<Opened()>& open) {
  const std::lock_guard lock(mutex_);
  if (file_ && file_->writable()) return std::shared_ptr<CaptureFile>();
  Opened opened = open();
  if (opened) take(*opened);
  return opened;
}

void DeviceCapture::take(std::shared_ptr<CaptureFile> file) {
  file_ = std::move(file);
  for_child_ = file_.get();
  running_ = true;
  ++number_;
}

// Connections notice it when they next move bytes. The file is closed at once, and what they would
// write until then is dropped.
bool DeviceCapture::stop(CaptureFile& file) {
  if (!file.stop()) return false;
  std::shared_ptr<CaptureFile> stopped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  if (file_.get() != &file) return true;
  stopped = std::move(file_);
  for_child_ = nullptr;
  running_ = false;
  ++number_;
  return true;
}

void DeviceCapture::comment(std::string_view text) {
  if (const auto current = file()) write_comment(*current, text);
}

void DeviceCapture::forget_after_fork() {
  if (CaptureFile* const file = for_child_) file->forget_after_fork();
  running_ = false;
}

}  // namespace weft::device
