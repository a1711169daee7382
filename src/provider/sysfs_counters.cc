#include "provider/sysfs_counters.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <exception>

#include "base/descriptor.h"
#include "base/system_call.h"
#include "device/bounded_lock.h"
#include "device/system.h"
#include "provider/port_counters.h"
#include "provider/sysfs_tree.h"

namespace weft::provider {
namespace {

constexpr std::uint64_t period_ns = 1'000'000'000;
constexpr useconds_t pause_us = 500;

// Only the process that holds this lock changes the files. A process may be stopped while it holds
// the lock, so the others wait for a few milliseconds only.
class FolderLock {
 public:
  explicit FolderLock(const Descriptor& folder) : folder_(folder) {}
  // Explicitly, because a child of fork(2) may have a copy of the descriptor.
  ~FolderLock() {
    if (held_) flock(folder_.get(), LOCK_UN);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  [[nodiscard]] bool take(int attempts) {
    for (int i = 0; i < attempts && !held_; ++i) {
      if (i > 0) usleep(pause_us);
      held_ = flock(folder_.get(), LOCK_EX | LOCK_NB) == 0;
    }
    return held_;
  }

 private:
  const Descriptor& folder_;
  bool held_ = false;
};

// A text that is not a number counts as 0. As a number only grows, its text never gets shorter.
void add_to(const Descriptor& folder, const PortCounter& counter, std::uint64_t more) {
  const std::string path(counter.path);
  const Descriptor file(openat(folder.get(), path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return;
  std::array<char, 24> text{};
  const ssize_t bytes = pread(file.get(), text.data(), text.size(), 0);
  std::uint64_t value = 0;
  if (bytes > 0) std::from_chars(text.data(), text.data() + bytes, value);
  const std::string changed = fmt::format("{}\n", value + more);
  (void)!pwrite(file.get(), changed.data(), changed.size(), 0);
}

}  // namespace

SysfsCounters::SysfsCounters(device::Device& device)
    : device_(device), published_(port_counter_paths().size()) {}

// A device without connections has nothing to add, and gets no thread for that.
std::shared_ptr<SysfsCounters> SysfsCounters::begin(device::Device& device) {
  std::shared_ptr<SysfsCounters> made(new SysfsCounters(device));
  device.engine().call_idly_at(device::sys::now_ns() + period_ns, made);
  return made;
}

// The thread that comes here may be the one that moves the data, so it does not wait.
void SysfsCounters::on_deadline() {
  publish(1);
  device_.engine().call_idly_at(device::sys::now_ns() + period_ns, shared_from_this());
}

void SysfsCounters::publish(int attempts) noexcept {
  try {
    // This thread may have it: a signal handler may end the program.
    std::unique_lock guard(mutex_, std::defer_lock);
    if (!device::lock_for_a_while(guard)) return;
    if (folder_.empty()) folder_ = sysfs_folder_of(device_);
    if (sysfs_folder_exists(folder_)) add_to_files(attempts);
  } catch (const std::exception&) {  // no memory; the next time adds it
  }
}

// A queue pair that is locked for long is left out, and its counters with it: a sum that is smaller
// than before waits until it has grown.
void SysfsCounters::add_to_files(int attempts) {
  const std::string path = folder_ + "/class/infiniband/weft0/ports/1";
  // By the call itself, as Descriptor closes it.
  const auto opened =
      system_call(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const Descriptor port(static_cast<int>(opened));
  if (!port.valid()) return;
  FolderLock lock(port);
  const auto counters = port_counters(device_);
  for (std::size_t i = 0; i < counters.size(); ++i) {
    if (counters[i].value <= published_[i]) continue;
    if (!lock.take(attempts)) return;
    add_to(port, counters[i], counters[i].value - published_[i]);
    published_[i] = counters[i].value;
  }
}

}  // namespace weft::provider
