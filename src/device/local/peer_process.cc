#include "device/local/peer_process.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/after_fork.h"
#include "base/system_call.h"
#include "device/limits.h"

namespace weft::device {
namespace {

// Of process_vm_readv(2), by ptrace(2) restrictions or a filter of system calls.
bool is_refusal(int error) {
  return error == EPERM || error == EACCES || error == ENOSYS;
}

FileIdentity identity_of(const sys::Descriptor& file) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return {};
  return {.device = status.st_dev, .inode = status.st_ino};
}

}  // namespace

PeerProcess::PeerProcess(pid_t pid, ProcessMark::Name mark, GrantView grants)
    : pid_(pid), mark_(mark), grants_(std::move(grants)) {}

std::shared_ptr<const PeerProcess> PeerProcess::open(pid_t pid, Sent sent, Ways ways) {
  // A filter of system calls refuses before it looks at the number.
  if (pid <= 0) return nullptr;
  auto opened = std::make_shared<PeerProcess>(pid, sent.mark, std::move(sent.grants));
  opened->file_ = sent.file;
  // Reading the mark proves three things at once: the number names that process here, the kernel
  // permits the access, and the program is the one that made the offer.
  const int failed = ways.kernel ? opened->check_memory() : EPERM;
  if (failed == 0 && pid == getpid()) opened->own_memory_ = ways.own_memory;
  if (failed == 0) return opened;
  if (!is_refusal(failed)) return nullptr;
  // Where /proc shows nothing of it, or shows the processes of another namespace, the number is not
  // used for anything.
  opened->reach_ = opened->check_file() == 0 ? Reach::file : Reach::nothing;
  return opened;
}

int PeerProcess::check_mark() const {
  if (reach_ == Reach::memory) return check_memory();
  return reach_ == Reach::file ? check_file() : EPERM;
}

int PeerProcess::check_memory() const {
  std::uint64_t number = 0;
  const iovec here{&number, sizeof number};
  const iovec there{reinterpret_cast<void*>(mark_.address), sizeof number};
  const ssize_t got = process_vm_readv(pid_, &here, 1, &there, 1, 0);
  // EFAULT: the page does not exist, so another program runs under this number.
  if (got < 0 && errno != EFAULT) return errno;
  return got == sizeof number && number == mark_.number ? 0 : ESRCH;
}

// The kernel permits this in more places than to read the memory: Yama does not restrict it
// (ptrace(2), PTRACE_MODE_READ). The descriptor is closed by execve(2), and at the end.
int PeerProcess::check_file() const {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/fd/%lld", pid_,
                static_cast<long long>(mark_.descriptor));
  struct stat status {};
  if (file_.inode == 0) return EPERM;
  if (::stat(path.data(), &status) != 0) return errno == ENOENT ? ESRCH : EPERM;
  return status.st_dev == file_.device && status.st_ino == file_.inode ? 0 : ESRCH;
}

// The state follows the name of the program, which is in parentheses and may contain some itself
// (proc_pid_stat(5)).
bool PeerProcess::is_stopped(std::uint32_t thread) const {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/task/%u/stat", pid_, thread);
  const sys::Descriptor file(
      static_cast<int>(system_call(SYS_openat, AT_FDCWD, path.data(), O_RDONLY | O_CLOEXEC)));
  if (!file.valid()) return false;
  std::array<char, 256> text{};
  if (sys::read(file.get(), text.data(), text.size() - 1) <= 0) return false;
  const char* end = std::strrchr(text.data(), ')');
  return end && end[1] == ' ' && (end[2] == 'T' || end[2] == 't');
}

// The region is looked at again after its file was opened: the peer keeps the descriptor as long as
// the region exists, so it named the right file. A file that is mapped keeps its inode.
std::shared_ptr<FileMemory> PeerProcess::map(const GrantView::Found& found) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<FileMemory> known;
  std::uint64_t bytes = 0;
  std::erase_if(mappings_, [&](const std::weak_ptr<FileMemory>& mapping) {
    const auto memory = mapping.lock();
    bytes += memory ? memory->length_bytes() : 0;
    if (memory && memory->find(found.file, found.region_bytes)) known = memory;
    return !memory;
  });
  if (known) return known;
  if (mappings_.size() >= limits::max_peer_mappings || bytes >= limits::max_peer_mapped_bytes ||
      found.region_bytes > limits::max_peer_mapped_bytes - bytes) {
    return nullptr;
  }
  const std::uint64_t whole_bytes =
      std::min(limits::max_whole_file_bytes, limits::max_peer_mapped_bytes - bytes);
  auto made = std::make_shared<FileMemory>();
  if (!made->open(pid_, found.file, static_cast<std::size_t>(found.region_bytes), whole_bytes)) {
    return nullptr;
  }
  if (check_mark() != 0 || !grants_.still_there(found)) return nullptr;
  mappings_.push_back(made);
  return made;
}

void PeerProcess::abandon() {
  grants_.abandon();
  walk_after_fork(mutex_, [this] {
    for (const auto& mapping : mappings_) {
      if (const auto memory = mapping.lock()) memory->abandon();
    }
  });
}

std::shared_ptr<const PeerProcess> PeerProcesses::find(pid_t pid, ProcessMark::Name mark) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const PeerProcess> found;
  // Entries of processes that no connection uses any more are removed on the way.
  std::erase_if(processes_, [&](const auto& entry) {
    const auto process = entry.lock();
    if (process && process->pid() == pid && process->mark() == mark) found = process;
    return !process;
  });
  if (found) last_ = found;
  return found;
}

void PeerProcesses::add(const std::shared_ptr<const PeerProcess>& process) {
  const std::lock_guard lock(mutex_);
  processes_.push_back(process);
  last_ = process;
}

// By process number and mark: the number alone may belong to another process by now.
std::shared_ptr<const PeerProcess> PeerProcesses::find_or_open(pid_t pid, ProcessMark::Name mark,
                                                               sys::Descriptor grants,
                                                               sys::Descriptor counts) {
  if (auto found = find(pid, mark)) return found;
  const FileIdentity file = identity_of(counts);
  SharedMemory table = SharedMemory::open(std::move(grants), grants::bytes, false);
  SharedMemory counted = SharedMemory::open(std::move(counts), grants::count_bytes, true);
  if (!table.valid() || !counted.valid()) return nullptr;
  auto opened = PeerProcess::open(
      pid, {.mark = mark, .grants = GrantView(std::move(table), std::move(counted)), .file = file},
      ways_);
  if (opened) add(opened);
  return opened;
}

void PeerProcesses::abandon_after_fork() {
  walk_after_fork(mutex_, [this] {
    for (const auto& entry : processes_) {
      if (const auto process = entry.lock()) const_cast<PeerProcess&>(*process).abandon();
    }
  });
}

}  // namespace weft::device
