// Replacements of the functions that receive and send.
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "interpose/address.h"
#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/kernel_connection.h"
#include "interpose/kernel_transfer.h"
#include "interpose/passed_descriptors.h"
#include "interpose/table.h"

using namespace weft::interpose;

namespace {

enum class Moves : std::uint8_t { in, out };

// Calls `ours` if the descriptor is a stream, else `next`.
template <Moves moves, typename Ours, typename Next>
ssize_t stream_or_kernel(int fd, const Ours& ours, const Next& next) {
  {
    const InCall work;
    if (const auto socket = find_stream(fd)) {
      const ssize_t done = guarded([&] { return static_cast<ssize_t>(ours(*socket)); });
      if (done != call_kernel) return done;
    } else if constexpr (moves == Moves::in) {
      let_key_go(fd);
    } else {
      note_key_goes(fd);
    }
  }
  return next();
}

// A stream carries neither an address nor control messages.
void clear_ancillary(msghdr& message, int flags) {
  message.msg_namelen = 0;
  message.msg_controllen = 0;
  message.msg_flags = flags & MSG_CMSG_CLOEXEC;
}

// readv(2), writev(2) and the like: nothing is done for no bytes, whatever the state of the socket.
// Another limit than that of recvmsg(2) has another error.
bool is_valid_count(int count) {
  return count >= 0 && count <= IOV_MAX;
}
bool is_empty(const iovec* pieces, int count) {
  return std::all_of(pieces, pieces + count, [](const iovec& piece) { return piece.iov_len == 0; });
}
ssize_t receive_pieces(Socket& socket, const iovec* pieces, int count, int flags) {
  if (!is_valid_count(count)) return fail_with(EINVAL);
  if (is_empty(pieces, count)) return 0;
  return receive(socket, pieces, static_cast<size_t>(count), flags);
}
ssize_t send_pieces(Socket& socket, const iovec* pieces, int count, int flags) {
  if (!is_valid_count(count)) return fail_with(EINVAL);
  if (is_empty(pieces, count)) return 0;
  return send(socket, pieces, static_cast<size_t>(count), flags);
}

}  // namespace

// --- Receiving -----------------------------------------------------------------------------------

WEFT_INTERPOSED ssize_t recv(int fd, void* into, size_t bytes, int flags) {
  return stream_or_kernel<Moves::in>(
      fd, [&](Socket& socket) { return receive(socket, into, bytes, flags); },
      [&] { return next::recv(fd, into, bytes, flags); });
}

// As with TCP, a connected socket returns no address.
WEFT_INTERPOSED ssize_t recvfrom(int fd, void* into, size_t bytes, int flags, sockaddr* address,
                                 socklen_t* address_bytes) {
  return stream_or_kernel<Moves::in>(
      fd,
      [&](Socket& socket) {
        const ssize_t got = receive(socket, into, bytes, flags);
        if (got >= 0 && address && address_bytes) *address_bytes = 0;
        return got;
      },
      [&] { return next::recvfrom(fd, into, bytes, flags, address, address_bytes); });
}

WEFT_INTERPOSED ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return stream_or_kernel<Moves::in>(
      fd,
      [&](Socket& socket) {
        const ssize_t got = receive(socket, message->msg_iov, message->msg_iovlen, flags);
        if (got >= 0) clear_ancillary(*message, flags);
        return got;
      },
      [&] { return next::recvmsg(fd, message, flags); });
}

// As recvmmsg(2): an error after the first message ends the call without being reported.
WEFT_INTERPOSED int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags,
                             timespec* timeout) {
  if (!find_stream(fd)) {
    let_key_go(fd);
    return next::recvmmsg(fd, messages, count, flags, timeout);
  }
  unsigned done = 0;
  while (done < count) {
    const ssize_t got = recvmsg(fd, &messages[done].msg_hdr, flags & ~MSG_WAITFORONE);
    if (got < 0) return done > 0 ? static_cast<int>(done) : -1;
    messages[done++].msg_len = static_cast<unsigned>(got);
    // At the end of the stream each further message would be empty as well.
    if (got == 0) break;
    // recvmmsg(2): MSG_WAITFORONE waits for the first message alone.
    if (flags & MSG_WAITFORONE) flags |= MSG_DONTWAIT;
  }
  return static_cast<int>(done);
}

WEFT_INTERPOSED ssize_t read(int fd, void* into, size_t bytes) {
  return stream_or_kernel<Moves::in>(
      fd, [&](Socket& socket) { return bytes == 0 ? ssize_t{0} : receive(socket, into, bytes, 0); },
      [&] { return next::read(fd, into, bytes); });
}

WEFT_INTERPOSED ssize_t readv(int fd, const iovec* pieces, int count) {
  return stream_or_kernel<Moves::in>(
      fd, [&](Socket& socket) { return receive_pieces(socket, pieces, count, 0); },
      [&] { return next::readv(fd, pieces, count); });
}

namespace {

// The flags of recv(2) and send(2) for those of preadv2(2) and pwritev2(2).
int waiting_of(int flags) {
  return flags & RWF_NOWAIT ? MSG_DONTWAIT : 0;
}

}  // namespace

// An offset of -1 means the file offset, so the call is readv(2), which waits unless the flags say
// otherwise.
WEFT_INTERPOSED ssize_t preadv2(int fd, const iovec* pieces, int count, off_t at, int flags) {
  if (at == -1 && find_stream(fd)) {
    return stream_or_kernel<Moves::in>(
        fd,
        [&](Socket& socket) { return receive_pieces(socket, pieces, count, waiting_of(flags)); },
        [&] { return next::preadv2(fd, pieces, count, at, flags); });
  }
  let_key_go(fd);
  return next::preadv2(fd, pieces, count, at, flags);
}

// --- Sending -------------------------------------------------------------------------------------

WEFT_INTERPOSED ssize_t send(int fd, const void* from, size_t bytes, int flags) {
  return stream_or_kernel<Moves::out>(
      fd, [&](Socket& socket) { return send(socket, from, bytes, flags); },
      [&] { return next::send(fd, from, bytes, flags); });
}

// As with TCP, the address is ignored for a connected socket.
WEFT_INTERPOSED ssize_t sendto(int fd, const void* from, size_t bytes, int flags,
                               const sockaddr* address, socklen_t address_bytes) {
  return stream_or_kernel<Moves::out>(
      fd,
      [&](Socket& socket) {
        if (address) check_name(address, address_bytes);
        return send(socket, from, bytes, flags);
      },
      [&] { return next::sendto(fd, from, bytes, flags, address, address_bytes); });
}

WEFT_INTERPOSED ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return stream_or_kernel<Moves::out>(
      fd,
      [&](Socket& socket) { return send(socket, message->msg_iov, message->msg_iovlen, flags); },
      [&] {
        std::optional<PassingMessage> passing;
        const bool possible = guarded([&] {
                                passing.emplace(*message);
                                return passing->get() ? 0 : -1;
                              }) == 0;
        return possible ? next::sendmsg(fd, passing->get(), flags) : -1;
      });
}

WEFT_INTERPOSED int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  unsigned done = 0;
  while (done < count) {
    const ssize_t sent = sendmsg(fd, &messages[done].msg_hdr, flags);
    if (sent < 0) return done > 0 ? static_cast<int>(done) : -1;
    messages[done++].msg_len = static_cast<unsigned>(sent);
  }
  return static_cast<int>(done);
}

WEFT_INTERPOSED ssize_t write(int fd, const void* from, size_t bytes) {
  return stream_or_kernel<Moves::out>(
      fd, [&](Socket& socket) { return send(socket, from, bytes, 0); },
      [&] { return next::write(fd, from, bytes); });
}

WEFT_INTERPOSED ssize_t writev(int fd, const iovec* pieces, int count) {
  return stream_or_kernel<Moves::out>(
      fd, [&](Socket& socket) { return send_pieces(socket, pieces, count, 0); },
      [&] { return next::writev(fd, pieces, count); });
}

WEFT_INTERPOSED ssize_t pwritev2(int fd, const iovec* pieces, int count, off_t at, int flags) {
  if (at == -1 && find_stream(fd)) {
    return stream_or_kernel<Moves::out>(
        fd, [&](Socket& socket) { return send_pieces(socket, pieces, count, waiting_of(flags)); },
        [&] { return next::pwritev2(fd, pieces, count, at, flags); });
  }
  return next::pwritev2(fd, pieces, count, at, flags);
}

// --- Files ---------------------------------------------------------------------------------------

namespace {

// Reads with pread(2) and moves the file's own offset only by what was sent, so that a partial send
// loses no bytes.
ssize_t send_file(Socket& socket, int from, off64_t* at, size_t bytes) {
  std::array<char, 65536> piece;
  size_t done = 0;
  while (done < bytes) {
    const size_t most = std::min(piece.size(), bytes - done);
    const off64_t here = at ? *at + static_cast<off64_t>(done) : lseek64(from, 0, SEEK_CUR);
    const ssize_t got = here < 0 ? -1 : pread64(from, piece.data(), most, here);
    if (got <= 0) {
      if (got < 0 && done == 0) return -1;
      break;
    }
    const ssize_t sent = send(socket, piece.data(), static_cast<size_t>(got), 0);
    if (sent < 0) {
      if (done == 0) return sent;
      break;
    }
    done += static_cast<size_t>(sent);
    if (!at) lseek64(from, here + sent, SEEK_SET);
    if (sent < got) break;
  }
  if (at) *at += static_cast<off64_t>(done);
  return static_cast<ssize_t>(done);
}

}  // namespace

WEFT_INTERPOSED ssize_t sendfile64(int to, int from, off64_t* at, size_t bytes) {
  return stream_or_kernel<Moves::out>(
      to, [&](Socket& socket) { return send_file(socket, from, at, bytes); },
      [&] { return next::sendfile64(to, from, at, bytes); });
}
WEFT_INTERPOSED ssize_t sendfile(int to, int from, off_t* at, size_t bytes) {
  if (!at) return sendfile64(to, from, nullptr, bytes);
  // off_t may have 32 bits, so the place is copied in both directions.
  off64_t place = *at;
  const ssize_t done = sendfile64(to, from, &place, bytes);
  *at = static_cast<off_t>(place);
  return done;
}

// The kernel moves these bytes itself, so they must pass through the visible socket.
WEFT_INTERPOSED ssize_t splice(int from, off64_t* from_at, int to, off64_t* to_at, size_t bytes,
                               unsigned flags) {
  for (const int fd : {from, to}) {
    if (!relay_for_kernel(fd)) return -1;
  }
  return next::splice(from, from_at, to, to_at, bytes, flags);
}

// --- Other names: programs built with _FORTIFY_SOURCE call these, and libc has aliases -----------

// The check is that of the C library: a call that would write beyond the buffer ends the program.
WEFT_INTERPOSED ssize_t __read_chk(int fd, void* into, size_t bytes, size_t room) {
  if (bytes > room) std::abort();
  return read(fd, into, bytes);
}
WEFT_INTERPOSED ssize_t __recv_chk(int fd, void* into, size_t bytes, size_t room, int flags) {
  if (bytes > room) std::abort();
  return recv(fd, into, bytes, flags);
}
WEFT_INTERPOSED ssize_t __recvfrom_chk(int fd, void* into, size_t bytes, size_t room, int flags,
                                       sockaddr* address, socklen_t* address_bytes) {
  if (bytes > room) std::abort();
  return recvfrom(fd, into, bytes, flags, address, address_bytes);
}
WEFT_INTERPOSED ssize_t __read(int fd, void* into, size_t bytes) {
  return read(fd, into, bytes);
}
WEFT_INTERPOSED ssize_t __write(int fd, const void* from, size_t bytes) {
  return write(fd, from, bytes);
}
WEFT_INTERPOSED ssize_t __send(int fd, const void* from, size_t bytes, int flags) {
  return send(fd, from, bytes, flags);
}
