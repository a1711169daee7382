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

Deadline deadline_of(int timeout_ms) {
  return timeout_ms < 0 ? Deadline::never() : Deadline(std::chrono::milliseconds(timeout_ms));
}

// Until something may be received: 0 or an errno value. `until`: the end of SO_RCVTIMEO, which
// limits the whole call, recv(2). Only a call that has received nothing and has no limit is
// restarted behind a signal handler with SA_RESTART.
int await_bytes(Socket& socket, Deadline until, std::size_t done) {
  const int timeout_ms = until.poll_timeout_ms();
  if (timeout_ms < 0 && done == 0) return socket.visible().await_readable();
  return socket.visible().await_readable(timeout_ms);
}

// Waits for more bytes than those that are there already, which make the visible socket readable.
// False if a signal or the end of the time ends the call.
bool await_more(Deadline until) {
  constexpr int pause_ms = 2;
  const int left_ms = until.poll_timeout_ms();
  if (left_ms == 0) return false;
  const Waiting wait;
  return !wait.ends_polling() &&
         next::poll(nullptr, 0, left_ms < 0 ? pause_ms : std::min(left_ms, pause_ms)) == 0;
}

// MSG_PEEK with MSG_WAITALL. A peek takes no bytes, so each attempt returns the first ones again.
// Returns what there is when no more can come: behind the end, or when the buffer is full.
ssize_t peek_all(Socket& socket, stream::Stream& stream, Into into) {
  const std::size_t total = total_of(into);
  const Deadline until = deadline_of(socket.receive_timeout_ms());
  while (true) {
    const auto now = stream.readiness();
    const bool last = socket.read_shut() || now.ended || now.over;
    const auto outcome = stream.receive(into, Deadline::now(), {.peek = true});
    if (outcome.ok()) {
      const bool full = outcome.bytes >= stream.options().receive_buffer_bytes;
      if (outcome.bytes == total || full || last || !await_more(until)) {
        return static_cast<ssize_t>(outcome.bytes);
      }
      continue;
    }
    if (!outcome.would_block()) return receive_failure(socket, outcome);
    if (socket.read_shut()) return 0;
    socket.drop_late_bells();
    socket.leave_set();
    const int failed = await_bytes(socket, until, 0);
    if (failed == EAGAIN || failed == EINTR) return fail_with(failed);
    if (socket.phase() == Socket::Phase::relayed) return call_kernel;
  }
}

// Receives once, or until all pieces are full with MSG_WAITALL. What has arrived is returned even
// if an error or a signal follows.
ssize_t receive_all(Socket& socket, stream::Stream& stream, Into into, int flags) {
  const stream::ReceiveFlags how{.peek = (flags & MSG_PEEK) != 0};
  const bool all = (flags & MSG_WAITALL) != 0;
  if (all && how.peek && waits(socket, flags)) return peek_all(socket, stream, into);
  const std::size_t total = total_of(into);
  const Deadline until = deadline_of(socket.receive_timeout_ms());
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
    const int failed = wait ? await_bytes(socket, until, done) : EAGAIN;
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

// A call for no bytes waits for some all the same, or for the end, as in the kernel.
ssize_t receive_nothing(Socket& socket, stream::Stream& stream, int flags) {
  std::byte ignored;
  std::span<std::byte> piece(&ignored, 1);
  const ssize_t got = receive_all(socket, stream, Into(&piece, 1), flags | MSG_PEEK);
  return got > 0 ? 0 : got;
}

// A call without bytes fails where one with bytes would.
ssize_t send_nothing(stream::Stream& stream, Socket& socket, int flags) {
  const auto outcome = stream.peek_send();
  return outcome.ok() || outcome.would_block() ? 0 : send_failure(socket, outcome, flags);
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
  if (flags & MSG_OOB) return fail_with(EINVAL);  // as TCP without urgent data
  if (flags & MSG_ERRQUEUE) return fail_with(EAGAIN);
  const auto stream = socket.stream();
  if (!stream) return fail_with(no_stream_error(socket, ENOTCONN));
  if (flags & MSG_TRUNC) return discard(socket, total_of(into), flags);
  if (total_of(into) == 0) return receive_nothing(socket, *stream, flags);
  socket.note_use();
  return receive_all(socket, *stream, into, flags);
}

// A blocking socket sends everything, a non-blocking one what fits now. MSG_MORE, MSG_ZEROCOPY and
// the like are hints, and ignored as in the kernel, which knows no invalid flags. But a program
// must not believe that urgent data is on its way.
ssize_t send(Socket& socket, From from, int flags) {
  if (flags & (MSG_OOB | MSG_FASTOPEN)) return fail_with(EOPNOTSUPP);
  const auto stream = socket.stream();
  if (!stream) {
    const int error = no_stream_error(socket, EPIPE);
    return error == EPIPE ? broken_pipe(flags) : fail_with(error);
  }
  const std::size_t total = total_of(from);
  if (total == 0) return send_nothing(*stream, socket, flags);
  std::size_t done = 0;
  const Deadline until = deadline_of(socket.send_timeout_ms());
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
  if (count > IOV_MAX) throw Error(EMSGSIZE, "too many pieces");
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
