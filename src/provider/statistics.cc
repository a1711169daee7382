#include "provider/statistics.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <system_error>

namespace weft::provider {
namespace {

// A signal handler knows no object.
constinit std::atomic<int> signal_wake{-1};

void on_signal(int /*signal*/) {
  const int saved = errno;
  const std::uint64_t one = 1;
  if (const int fd = signal_wake; fd >= 0) {
    [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
  }
  errno = saved;
}

int open_locked(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
  if (file < 0) return -1;
  if (flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  ::close(file);
  errno = EWOULDBLOCK;
  return -1;
}

}  // namespace

Result<std::shared_ptr<Statistics>, std::string> Statistics::open(device::Device& device) {
  const std::string& path = device.settings().stats_path;
  int file = open_locked(path);
  if (file < 0 && errno == EWOULDBLOCK) file = open_locked(path + "." + std::to_string(getpid()));
  if (file < 0) {
    return "WEFT_STATS=" + path + ": cannot be written: " + std::generic_category().message(errno);
  }
  return std::shared_ptr<Statistics>(new Statistics(device, file));
}

Statistics::~Statistics() {
  if (file_ >= 0) close(file_);
  if (wake_ >= 0) close(wake_);
}

void Statistics::listen_for_signal() {
  struct sigaction old {};
  if (sigaction(SIGUSR2, nullptr, &old) != 0) return;
  if ((old.sa_flags & SA_SIGINFO) != 0 || old.sa_handler != SIG_DFL) return;
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0 || device_.engine().watch(wake_, EPOLLIN, shared_from_this()) == 0) return;
  signal_wake = wake_;
  struct sigaction ours {};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &ours, nullptr);
}

void Statistics::on_ready(std::uint32_t /*epoll_events*/) {
  std::uint64_t ignored = 0;
  [[maybe_unused]] const auto got = ::read(wake_, &ignored, sizeof ignored);
  write("signal");
}

void Statistics::write(const char* occasion) noexcept try {
  const std::lock_guard lock(writing_);
  if (file_ < 0) return;
  const std::string text = to_json(device_.statistics_registry()->snapshot(), occasion);
  std::size_t done = 0;
  while (done < text.size()) {
    const auto more =
        pwrite(file_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) return;
    done += static_cast<std::size_t>(more);
  }
  [[maybe_unused]] const int cut = ftruncate(file_, static_cast<off_t>(text.size()));
} catch (const std::exception&) {
  // At the end of a program there is nobody to tell.
}

void Statistics::abandon_after_fork() {
  signal_wake = -1;
  if (file_ >= 0) close(file_);
  if (wake_ >= 0) close(wake_);
  file_ = wake_ = -1;
}

}  // namespace weft::provider
