// The memory of another process of the same user: process_vm_readv(2), process_vm_writev(2).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/system.h"

namespace weft::device {

class PeerProcess {
 public:
  PeerProcess() = default;
  // `pid`: from SO_PEERCRED. Not valid where the process cannot be referred to by a pidfd.
  explicit PeerProcess(pid_t pid);

  [[nodiscard]] bool valid() const { return handle_.valid(); }
  // False once the process has ended.
  [[nodiscard]] bool alive() const;

  // Copy between memory of this process and of the peer, in ascending order of addresses, so that
  // the last byte comes last. Both sides have the same total size. 0, EFAULT where one of the two
  // is not mapped (part may have been copied), EPERM where the kernel refuses, ESRCH after its end.
  [[nodiscard]] int write(std::span<const iovec> from, std::span<const iovec> to);
  [[nodiscard]] int read(std::span<const iovec> to, std::span<const iovec> from);

 private:
  using Call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                           unsigned long);
  [[nodiscard]] int copy(Call call, std::span<const iovec> local, std::span<const iovec> remote);

  pid_t pid_ = 0;
  sys::Descriptor handle_;  // pidfd_open(2)
  std::uint64_t checked_ns_ = 0;
};

}  // namespace weft::device
