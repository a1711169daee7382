// Another process of the same user on this host: what this process holds of it for all of their
// connections.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/local/grant_table.h"
#include "device/local/patience.h"
#include "device/local/process_mark.h"
#include "device/local/shared_memory.h"
#include "device/settings.h"
#include "device/system.h"

namespace weft::device {

// How this process recognises the peer, and whether it reaches the peer's memory.
enum class Reach : std::uint8_t {
  memory,   // process_vm_readv(2) and process_vm_writev(2) work
  file,     // they are refused, but /proc shows the file that the mark names
  nothing,  // both are refused: only messages show that the peer exists
};

// A file, whatever its name.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;  // 0: none
};

// Thread-safe, apart from abandon().
class PeerProcess {
 public:
  // What a process has sent of itself. `mark`: as it has named it. `grants`: the regions that it
  // grants. `file`: the one whose descriptor the mark names.
  struct Sent {
    ProcessMark::Name mark;
    GrantView grants;
    FileIdentity file{};
  };
  // In which ways its memory may be accessed.
  struct Ways {
    bool kernel = true;                          // process_vm_readv(2), process_vm_writev(2)
    OwnMemory own_memory = OwnMemory::directly;  // where it is this process itself
  };
  // `pid`: from SO_PEERCRED. Null where the number belongs to no process, or to another one than
  // that which has sent this.
  [[nodiscard]] static std::shared_ptr<const PeerProcess> open(pid_t pid, Sent sent, Ways ways);
  PeerProcess(pid_t pid, ProcessMark::Name mark, GrantView grants);

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Whether this process may read and write its memory. Otherwise ptrace(2) restrictions or a
  // filter of system calls forbid it. As it was at open().
  [[nodiscard]] bool reachable() const { return reach_ == Reach::memory; }
  // How its memory may be accessed where it is this process itself; else OwnMemory::shared.
  [[nodiscard]] OwnMemory own_memory() const { return own_memory_; }
  [[nodiscard]] const ProcessMark::Name& mark() const { return mark_; }
  [[nodiscard]] const GrantView& grants() const { return grants_; }
  // False once the process has ended, or executes another program. No pidfd: that would be one more
  // descriptor, and does not notice execve(2).
  [[nodiscard]] bool alive() const { return check_mark() != ESRCH; }
  // 0 if the memory with the mark is there, or the file of the mark where the memory cannot be
  // read; ESRCH after its end or execve(2), EPERM where the kernel refuses.
  [[nodiscard]] int check_mark() const;
  // Whether one of its threads is stopped (SIGSTOP, a debugger), and so outside of system calls.
  [[nodiscard]] bool is_stopped(std::uint32_t thread) const;

  // A mapping that contains the region, which is memory of a file. Made unless a connection to the
  // process has one. Null where that is not possible, the region is gone, or the limits are
  // reached.
  [[nodiscard]] std::shared_ptr<FileMemory> map(const GrantView::Found& found) const;

  // Shared by the connections to it.
  [[nodiscard]] Patience& patience() const { return patience_; }

  // In the child after fork().
  void abandon();

 private:
  [[nodiscard]] int check_memory() const;
  [[nodiscard]] int check_file() const;

  pid_t pid_;
  ProcessMark::Name mark_;
  FileIdentity file_;
  Reach reach_ = Reach::memory;
  OwnMemory own_memory_ = OwnMemory::shared;
  GrantView grants_;
  mutable Patience patience_;
  mutable std::mutex mutex_;  // of mappings_
  mutable std::vector<std::weak_ptr<FileMemory>> mappings_;
};

// The peer processes of a device, so that connections to one process share what they hold of it.
// Thread-safe.
class PeerProcesses {
 public:
  explicit PeerProcesses(PeerProcess::Ways ways = {}) : ways_(ways) {}
  // Null if it is not known. The process that was found or added last is kept while no connection
  // has it: a client that connects for each request has none most of the time.
  [[nodiscard]] std::shared_ptr<const PeerProcess> find(pid_t pid, ProcessMark::Name mark);
  void add(const std::shared_ptr<const PeerProcess>& process);
  // The same, but makes it from what the process has sent of itself if it is not known: its grants
  // and its counts. Null where that is not what it should be, or where PeerProcess::open() finds
  // another process.
  [[nodiscard]] std::shared_ptr<const PeerProcess> find_or_open(pid_t pid, ProcessMark::Name mark,
                                                                sys::Descriptor grants,
                                                                sys::Descriptor counts);
  void abandon_after_fork();

 private:
  const PeerProcess::Ways ways_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<const PeerProcess>> processes_;
  std::shared_ptr<const PeerProcess> last_;
};

}  // namespace weft::device
