#include "device/local/peer_process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace weft::device {
namespace {

// A number can belong to another process only after the kernel has given out all others, which
// takes far longer than this.
constexpr std::uint64_t trust_ns = 1'000'000;

std::size_t total(std::span<const iovec> pieces) {
  std::size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

// Drops the first `done` bytes of the list, which starts at `first` with an offset into it.
struct Cursor {
  std::span<const iovec> pieces;
  std::size_t offset = 0;

  void skip(std::size_t done) {
    while (!pieces.empty() && done >= pieces.front().iov_len - offset) {
      done -= pieces.front().iov_len - offset;
      offset = 0;
      pieces = pieces.subspan(1);
    }
    offset += done;
  }

  // The next pieces, in the form that the kernel takes.
  std::span<const iovec> next(std::span<iovec> room) const {
    const std::size_t count = std::min(room.size(), pieces.size());
    for (std::size_t i = 0; i < count; ++i) room[i] = pieces[i];
    if (count != 0) {
      room[0].iov_base = static_cast<std::byte*>(room[0].iov_base) + offset;
      room[0].iov_len -= offset;
    }
    return room.first(count);
  }
};

}  // namespace

PeerProcess::PeerProcess(pid_t pid)
    : pid_(pid), handle_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U))) {
  if (handle_.get() < 0) (void)handle_.release();
}

bool PeerProcess::alive() const {
  // A pidfd is readable once the process has ended.
  return handle_.valid() && sys::poll_readable(handle_.get(), 0) == 0;
}

int PeerProcess::write(std::span<const iovec> from, std::span<const iovec> to) {
  return copy(&process_vm_writev, from, to);
}

int PeerProcess::read(std::span<const iovec> to, std::span<const iovec> from) {
  return copy(&process_vm_readv, to, from);
}

int PeerProcess::copy(Call call, std::span<const iovec> local, std::span<const iovec> remote) {
  const std::uint64_t now_ns = sys::now_ns();
  if (now_ns - checked_ns_ > trust_ns) {
    if (!alive()) return ESRCH;
    checked_ns_ = now_ns;
  }
  constexpr std::size_t pieces = 64;
  std::array<iovec, pieces> local_room;
  std::array<iovec, pieces> remote_room;
  Cursor here{local};
  Cursor there{remote};
  for (std::size_t left = total(local); left > 0;) {
    const auto from = here.next(local_room);
    const auto to = there.next(remote_room);
    const ssize_t done = call(pid_, from.data(), from.size(), to.data(), to.size(), 0);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return EFAULT;
    here.skip(static_cast<std::size_t>(done));
    there.skip(static_cast<std::size_t>(done));
    left -= static_cast<std::size_t>(done);
  }
  return 0;
}

}  // namespace weft::device
