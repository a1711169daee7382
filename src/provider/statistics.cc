#include "provider/statistics.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <string_view>
#include <system_error>

#include "base/own_descriptors.h"
#include "base/write_signals.h"

namespace weft::provider {
namespace {

// A signal handler has no argument for an object.
constinit std::atomic<int> signal_wake{-1};

void on_signal(int /*signal*/) {
  // write(2) may change errno, which the interrupted code may be about to read.
  const int saved = errno;
  const std::uint64_t one = 1;
  if (const int fd = signal_wake; fd >= 0) {
    [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
  }
  errno = saved;
}

// No descriptor, with errno; EWOULDBLOCK if another process has locked the file. Does not truncate
// it before the lock is held. Each report replaces the one before it, so pipes and terminals, where
// that is impossible, are refused with ESPIPE; O_NONBLOCK, because a FIFO would wait for a reader.
Descriptor open_locked(const std::string& path) {
  constexpr int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  Descriptor file(own_descriptors::moved_high(::open(path.c_str(), flags, 0644)));
  if (file.valid() && lseek(file.get(), 0, SEEK_CUR) < 0) return {};
  if (!file.valid() || flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  errno = EWOULDBLOCK;
  return {};
}

constexpr std::string_view prometheus_ending = ".prom";

// A name for this process alone. Collectors find the files by their ending, which therefore stays.
std::string own_path(const std::string& path, bool prometheus) {
  const std::string pid = "." + std::to_string(getpid());
  if (!prometheus) return path + pid;
  return path.substr(0, path.size() - prometheus_ending.size()) + pid +
         std::string(prometheus_ending);
}

}  // namespace

Result<std::shared_ptr<Statistics>, std::string> Statistics::open(device::Device& device) {
  const std::string& path = device.settings().stats_path;
  const bool prometheus = path.ends_with(prometheus_ending);
  Descriptor file = open_locked(path);
  if (!file.valid() && errno == EWOULDBLOCK) {
    // Another process that runs at the same time writes the file itself, so this one takes a name
    // of its own.
    file = open_locked(own_path(path, prometheus));
  }
  if (!file.valid()) {
    return "WEFT_STATS=" + path + ": cannot be written: " + std::generic_category().message(errno) +
           "; name a file in a folder that exists";
  }
  return std::shared_ptr<Statistics>(
      new Statistics(device, std::move(file), prometheus ? to_prometheus : to_json));
}

// The handler only wakes the progress thread, which may allocate memory and take locks.
void Statistics::listen_for_signal() {
  struct sigaction old {};
  if (sigaction(SIGUSR2, nullptr, &old) != 0) return;
  // A handler of the program, also SIG_IGN, has priority.
  if ((old.sa_flags & SA_SIGINFO) != 0 || old.sa_handler != SIG_DFL) return;
  const int wake = wake_.emplace().get();
  if (!wake_->valid() || device_.engine().watch(wake, EPOLLIN, shared_from_this()) == 0) return;
  // Before the handler is installed, since it may run at once.
  signal_wake = wake;
  struct sigaction ours {};
  ours.sa_handler = on_signal;
  // The program does not expect this signal, so that its system calls should not fail with EINTR.
  ours.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &ours, nullptr);
}

void Statistics::on_ready(std::uint32_t /*epoll_events*/) {
  wake_->drain();
  write("signal");
}

void Statistics::write(const char* occasion) noexcept try {
  const std::lock_guard lock(writing_);
  if (!file_.valid()) return;
  const std::string text = format_(device_, occasion);
  const BlockedWriteSignals blocked;
  std::size_t done = 0;
  while (done < text.size()) {
    const auto more =
        pwrite(file_.get(), text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return;
    done += static_cast<std::size_t>(more);
  }
  // After the write, not before: a reader never finds the file empty.
  [[maybe_unused]] const int cut = ftruncate(file_.get(), static_cast<off_t>(text.size()));
} catch (const std::exception&) {
  // The program is ending: there is no caller to report this to.
}

// The handler is inherited. It finds no descriptor before the one that it writes to is closed.
void Statistics::abandon_after_fork() {
  signal_wake = -1;
  file_.reset();
  wake_.reset();
}

}  // namespace weft::provider
