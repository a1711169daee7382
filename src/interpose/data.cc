#include "interpose/data.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <chrono>

#include "base/signal_handlers.h"
#include "weft/deadline.hpp"

namespace weft::interpose {
namespace {

// Polls before blocking: most replies arrive sooner than a blocked thread wakes up.
constexpr std::chrono::microseconds spin{50};

template <typename Byte>
std::size_t total_of(std::span<std::span<Byte>> pieces) {
  std::size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

template <typename Byte>
void drop(std::span<std::span<Byte>> pieces, std::size_t bytes) {
  for (auto& piece : pieces) {
    const std::size_t part = std::min(piece.size(), bytes);
    piece = piece.subspan(part);
    bytes -= part;
  }
}

// Calls `attempt` until it returns something other than would-block, or `spin` is over.
template <typename Attempt>
stream::Transfer spin_on(const Attempt& attempt) {
  const auto until = std::chrono::steady_clock::now() + spin;
  stream::Transfer outcome = attempt();
  while (outcome.would_block() && std::chrono::steady_clock::now() < until) {
    sched_yield();  // the other side may need this processor to answer
    outcome = attempt();
  }
  return outcome;
}

bool waits(const Socket& socket, int flags) {
  return !socket.nonblocking() && !(flags & MSG_DONTWAIT);
}

// The errno of a call on a socket without a stream.
int no_stream_error(const Socket& socket, int otherwise) {
  if (socket.phase() == Socket::Phase::connecting) return EAGAIN;
  return socket.phase() == Socket::Phase::abandoned ? EOPNOTSUPP : otherwise;
}

// send(2): the error EPIPE comes with SIGPIPE unless the call has MSG_NOSIGNAL.
ssize_t broken_pipe(int flags) {
  if (!(flags & MSG_NOSIGNAL)) raise(SIGPIPE);
  return fail_with(EPIPE);
}

// As sockets do: reports the loss of the connection once, and the end of the bytes each time.
ssize_t receive_failure(Socket& socket, const stream::Transfer& outcome) {
  if (outcome.end() || !socket.claim_loss_report()) return 0;
  return fail_with(outcome.error_number == ECANCELED ? ECONNRESET : outcome.error_number);
}

ssize_t send_failure(Socket& socket, const stream::Transfer& outcome, int flags) {
  if (outcome.error_number == EPIPE || !socket.claim_loss_report()) return broken_pipe(flags);
  return fail_with(outcome.error_number == ECANCELED ? ECONNRESET : outcome.error_number);
}

// MSG_TRUNC on TCP: receives the bytes and drops them (tcp(7)).
ssize_t discard(Socket& socket, std::size_t bytes, int flags) {
  std::array<std::byte, 65536> ignored;
  return receive(socket, ignored.data(), std::min(bytes, ignored.size()), flags & ~MSG_TRUNC);
}

// Receives once, or until all pieces are full with MSG_WAITALL. What has arrived is returned even
// if an error or a signal follows.
ssize_t receive_all(Socket& socket, stream::Stream& stream, Into into, int flags) {
  const stream::ReceiveFlags how{.peek = (flags & MSG_PEEK) != 0};
  const bool all = (flags & MSG_WAITALL) != 0;
  // A peek takes no bytes, so a loop over it would return the first ones again: the stream itself
  // waits until all of them are there.
  if (all && how.peek && waits(socket, flags)) {
    const auto outcome = stream.receive(into, Deadline::never(), {.peek = true, .wait_all = true});
    return outcome.ok() ? static_cast<ssize_t>(outcome.bytes) : receive_failure(socket, outcome);
  }
  const std::size_t total = total_of(into);
  std::size_t done = 0;
  const auto attempt = [&] { return stream.receive(into, Deadline::now(), how); };
  while (true) {
    // What arrives before and after shutdown(2) is received, and nothing is waited for.
    const bool shut = socket.read_shut();
    const bool wait = waits(socket, flags) && !shut;
    const auto outcome = wait ? spin_on(attempt) : attempt();
    if (shut && !outcome.ok()) return static_cast<ssize_t>(done);
    if (outcome.ok()) {
      done += outcome.bytes;
      socket.note_transfer(outcome.bytes);
      drop(into, outcome.bytes);
      if (done == total || !all || !wait) return static_cast<ssize_t>(done);
      continue;
    }
    if (!outcome.would_block()) {
      return done > 0 ? static_cast<ssize_t>(done) : receive_failure(socket, outcome);
    }
    socket.drop_late_bells();
    if (wait) socket.leave_set();
    const int failed = wait ? socket.visible().await_readable() : EAGAIN;
    if (failed == EAGAIN || failed == EINTR) {
      return done > 0 ? static_cast<ssize_t>(done) : fail_with(failed);
    }
    if (socket.phase() == Socket::Phase::relayed)
      return done > 0 ? static_cast<ssize_t>(done) : call_kernel;
  }
}

// Whether a signal with a handler ends a call that has sent nothing yet. As in the kernel, the call
// is restarted behind a handler with SA_RESTART unless there is a timeout, signal(7).
bool ends_by_signal(const Socket& socket) {
  const SignalHandlers handlers = handlers_of_thread();
  return socket.send_timeout_ms() >= 0 || handlers.interrupt || !handlers.restart;
}

// Until something can be sent, or `until`: 0 or an errno value. A call that must not wait returns
// EAGAIN. But a connection of TCP always has room for its first bytes, so these wait for a moment,
// until the peer has begun the connection.
int await_room(Socket& socket, const stream::Stream& stream, Deadline until, bool wait) {
  constexpr int beginning_ms = 50;
  if (wait) return socket.visible().await_writable(until.poll_timeout_ms());
  const bool begins =
      socket.phase() == Socket::Phase::connected && stream.statistics().bytes_sent == 0;
  return begins && socket.visible().await_writable(beginning_ms) == 0 ? 0 : EAGAIN;
}

}  // namespace

ssize_t receive(Socket& socket, Into into, int flags) {
  constexpr int known = MSG_PEEK | MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC |
                        MSG_TRUNC | MSG_ERRQUEUE;
  if (flags & MSG_OOB) return fail_with(EINVAL);  // as TCP without urgent data
  if (flags & ~known) return fail_with(EOPNOTSUPP);
  if (flags & MSG_ERRQUEUE) return fail_with(EAGAIN);
  const auto stream = socket.stream();
  if (!stream) return fail_with(no_stream_error(socket, ENOTCONN));
  if (flags & MSG_TRUNC) return discard(socket, total_of(into), flags);
  if (total_of(into) == 0) return 0;
  socket.note_use();
  return receive_all(socket, *stream, into, flags);
}

// A blocking socket sends everything, a non-blocking one what fits now. MSG_MORE, MSG_ZEROCOPY and
// the like are hints, and ignored.
ssize_t send(Socket& socket, From from, int flags) {
  constexpr int known =
      MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_WAITALL | MSG_EOR | MSG_ZEROCOPY | MSG_CONFIRM;
  if (flags & ~known) return fail_with(EOPNOTSUPP);
  const auto stream = socket.stream();
  if (!stream) {
    const int error = no_stream_error(socket, EPIPE);
    return error == EPIPE ? broken_pipe(flags) : fail_with(error);
  }
  const std::size_t total = total_of(from);
  std::size_t done = 0;
  const Deadline until = socket.send_timeout_ms() < 0
                             ? Deadline::never()
                             : Deadline(std::chrono::milliseconds(socket.send_timeout_ms()));
  while (done < total) {
    const auto attempt = [&] { return stream->send(from, Deadline::now()); };
    const bool wait = waits(socket, flags);
    const auto outcome = wait ? spin_on(attempt) : attempt();
    if (outcome.ok()) {
      done += outcome.bytes;
      socket.note_transfer(outcome.bytes);
      drop(from, outcome.bytes);
      if (!wait) break;
      continue;
    }
    if (!outcome.would_block()) {
      return done > 0 ? static_cast<ssize_t>(done) : send_failure(socket, outcome, flags);
    }
    const int failed = await_room(socket, *stream, until, wait);
    const bool interrupted = failed == EINTR && (done > 0 || ends_by_signal(socket));
    if (failed == EAGAIN || interrupted) {
      return done > 0 ? static_cast<ssize_t>(done) : fail_with(failed);
    }
    if (socket.phase() == Socket::Phase::relayed)
      return done > 0 ? static_cast<ssize_t>(done) : call_kernel;
  }
  return static_cast<ssize_t>(done);
}

ssize_t receive(Socket& socket, void* into, std::size_t bytes, int flags) {
  std::span<std::byte> piece(static_cast<std::byte*>(into), bytes);
  return receive(socket, std::span(&piece, 1), flags);
}

ssize_t send(Socket& socket, const void* from, std::size_t bytes, int flags) {
  std::span<const std::byte> piece(static_cast<const std::byte*>(from), bytes);
  return send(socket, std::span(&piece, 1), flags);
}

namespace {

template <typename Byte>
std::vector<std::span<Byte>> spans_of(const iovec* pieces, std::size_t count) {
  if (count > IOV_MAX) throw Error(EINVAL, "too many pieces");
  std::vector<std::span<Byte>> spans;
  spans.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    spans.emplace_back(static_cast<Byte*>(pieces[i].iov_base), pieces[i].iov_len);
  }
  return spans;
}

}  // namespace

ssize_t receive(Socket& socket, const iovec* pieces, std::size_t count, int flags) {
  auto spans = spans_of<std::byte>(pieces, count);
  return receive(socket, Into(spans), flags);
}

ssize_t send(Socket& socket, const iovec* pieces, std::size_t count, int flags) {
  auto spans = spans_of<const std::byte>(pieces, count);
  return send(socket, From(spans), flags);
}

}  // namespace weft::interpose
