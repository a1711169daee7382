#include "device/tap/capture_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/system_call.h"
#include "base/write_signals.h"

namespace weft::device {

namespace {

// The writer whose function this thread is running.
constinit thread_local const CaptureWriter* calling = nullptr;

struct Opened {
  int descriptor = -1;
  bool regular = false;
};

enum class Cause { error, busy };

struct Failure {
  Cause cause = Cause::error;
  int error = 0;
};

// All calls on the file are direct system calls, so that a library that replaces the functions of
// the C library does not see them.
void raw_close(int descriptor) {
  own_descriptors::remove(descriptor);
  system_call(SYS_close, descriptor);
}

std::string message(int error) {
  return std::generic_category().message(error);
}

std::optional<mode_t> file_type(int descriptor) {
  struct statx status {};
  if (system_call(SYS_statx, descriptor, "", AT_EMPTY_PATH, STATX_TYPE, &status) != 0) return {};
  return status.stx_mode & S_IFMT;
}

// Truncates only with the lock: without it the file may be another process's capture. A file system
// without locks counts as busy, because other writers cannot be detected.
Result<Opened, Failure> lock_and_empty(Opened file, mode_t type) {
  if (type == S_IFCHR) return file;  // /dev/null and terminals may have several writers
  if (system_call(SYS_flock, file.descriptor, LOCK_EX | LOCK_NB) != 0) {
    return Failure{Cause::busy, errno};
  }
  if (file.regular && system_call(SYS_ftruncate, file.descriptor, 0L) != 0) {
    return Failure{Cause::error, errno};
  }
  return file;
}

// With O_NONBLOCK, opening a FIFO without a reader fails instead of blocking the program.
Result<Opened, Failure> open_locked(const std::string& path) {
  constexpr int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const long descriptor = system_call(SYS_openat, AT_FDCWD, path.c_str(), flags, 0644);
  if (descriptor < 0) return Failure{Cause::error, errno};
  Opened file{own_descriptors::moved_high(static_cast<int>(descriptor))};
  own_descriptors::add(file.descriptor);
  // From here on writes block: a slow reader of a FIFO delays the program instead of losing
  // packets.
  system_call(SYS_fcntl, file.descriptor, F_SETFL, 0L);
  const auto type = file_type(file.descriptor);
  file.regular = type == S_IFREG;
  auto result = lock_and_empty(file, type.value_or(0));
  if (!result) raw_close(file.descriptor);
  return result;
}

std::string explain(const std::string& path, Failure failure) {
  const char* next_step =
      "name a file in a directory that exists and can be written (WEFT_CAPTURE, weft run "
      "--capture)";
  if (failure.cause == Cause::busy) {
    next_step = "another writer holds it: choose another file (WEFT_CAPTURE)";
  } else if (failure.error == ENXIO) {
    next_step = "nobody reads this FIFO: start its reader first";
  }
  return fmt::format("cannot write the capture {}: {}; {}", path, message(failure.error),
                     next_step);
}

// A write beyond RLIMIT_FSIZE raises SIGXFSZ (setrlimit(2)). If the limit cannot be read, there may
// be one.
bool file_size_is_limited() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

// Removes the first `bytes` bytes from `vectors`.
std::span<iovec> advance(std::span<iovec> vectors, std::size_t bytes) {
  while (!vectors.empty() && bytes >= vectors.front().iov_len) {
    bytes -= vectors.front().iov_len;
    vectors = vectors.subspan(1);
  }
  if (bytes != 0) {
    auto& first = vectors.front();
    first.iov_base = static_cast<std::byte*>(first.iov_base) + bytes;
    first.iov_len -= bytes;
  }
  return vectors;
}

struct Written {
  std::int64_t bytes = 0;
  int error = 0;
};

// Needs more than one call only if the kernel stops early, or for more than IOV_MAX pieces.
Written write_all(int descriptor, std::span<iovec> vectors) {
  Written total;
  while (!vectors.empty()) {
    const auto count = std::min<std::size_t>(vectors.size(), IOV_MAX);
    const long bytes = system_call(SYS_writev, descriptor, vectors.data(), count);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return {total.bytes, bytes < 0 ? errno : ENOSPC};
    total.bytes += bytes;
    vectors = advance(vectors, static_cast<std::size_t>(bytes));
  }
  return total;
}

}  // namespace

Result<std::unique_ptr<CaptureWriter>, std::string> CaptureWriter::open(const std::string& path) {
  std::string used = path;
  auto file = open_locked(used);
  if (!file && file.error().cause == Cause::busy) {
    // Another process may write this file (see lock_and_empty()), so this one has a file of its
    // own.
    used = fmt::format("{}.{}", path, system_call(SYS_getpid));
    file = open_locked(used);
  }
  if (!file) {
    std::string why = explain(used, file.error());
    errno = file.error().error;
    return why;
  }
  return std::unique_ptr<CaptureWriter>(
      new CaptureWriter(file->descriptor, std::move(used), file->regular));
}

std::unique_ptr<CaptureWriter> CaptureWriter::to(std::function<void(Bytes)> function) {
  return std::unique_ptr<CaptureWriter>(new CaptureWriter(std::move(function)));
}

CaptureWriter::CaptureWriter(int descriptor, std::string path, bool regular)
    : descriptor_(descriptor),
      path_(std::move(path)),
      regular_(regular),
      may_signal_(!regular || file_size_is_limited()) {}

CaptureWriter::CaptureWriter(std::function<void(Bytes)> function)
    : function_(std::move(function)), descriptor_(-1), regular_(false), may_signal_(false) {}

CaptureWriter::~CaptureWriter() {
  close();
}

// Checks twice, because another thread may have ended the capture while this one waited for the
// lock.
void CaptureWriter::write(std::span<iovec> vectors, std::size_t packets) {
  if (!writable()) return count_lost(packets);
  const std::lock_guard lock(mutex_);
  if (!writable()) return count_lost(packets);
  const std::string failure = function_ ? call_function(vectors) : write_file(vectors);
  if (failure.empty()) {
    packets_ += packets;
    return;
  }
  count_lost(packets);
  log(LogLevel::warning, "capture", failure);
  close();
}

// Truncates to complete blocks after a failure, so that readers do not report a damaged file.
std::string CaptureWriter::write_file(std::span<iovec> vectors) {
  // A failed capture must not end the program that is being captured.
  std::optional<BlockedWriteSignals> guard;
  if (may_signal_) guard.emplace();
  const Written result = write_all(descriptor_, vectors);
  if (result.error == 0) {
    written_ += result.bytes;
    return {};
  }
  if (regular_) system_call(SYS_ftruncate, descriptor_, written_);
  return fmt::format("the capture {} ends here: {}; what it holds can be read", path_,
                     message(result.error));
}

// The function gets one piece of memory. Its exceptions must not reach the thread that moves data.
std::string CaptureWriter::call_function(std::span<const iovec> vectors) {
  joined_.clear();
  for (const iovec& piece : vectors) {
    const auto* const from = static_cast<const std::byte*>(piece.iov_base);
    joined_.insert(joined_.end(), from, from + piece.iov_len);
  }
  const CaptureWriter* const outer = std::exchange(calling, this);
  std::string failure;
  try {
    function_(joined_);
  } catch (const std::exception& thrown) {
    failure = fmt::format("the capture ends here: its function has thrown: {}", thrown.what());
  } catch (...) {
    failure = "the capture ends here: its function has thrown an exception";
  }
  calling = outer;
  return failure;
}

bool CaptureWriter::stop() {
  if (calling == this) return false;
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  close();
  return true;
}

void CaptureWriter::forget() {
  forgotten_ = true;
  close();
}

// The exchange makes sure that the descriptor is closed once.
void CaptureWriter::close() {
  if (open_.exchange(false) && descriptor_ >= 0) raw_close(descriptor_);
}

}  // namespace weft::device
