// A TCP socket of the program that is a stream.
//
// The program's descriptor is that of a VisibleSocket. A kernel socket exists beside it: it holds
// the address until the program connects, it listens, and it checks and stores socket options.
//
// A new socket has the kernel's one only, which is the program's descriptor: the connection may
// turn out to be one that is left to the kernel (kernel_connection.h). open_visible() makes the
// other one as soon as the program uses it in a way in which it could tell that its file is
// replaced later.
//
// The kernel itself must carry the bytes if another process or stdio uses the descriptor, or if the
// peer speaks plain TCP. Then the visible socket becomes a pipe, a relay copies between it and the
// stream, and all calls are the kernel's.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "interpose/accepted_client.h"
#include "interpose/descriptor.h"
#include "interpose/destinations.h"
#include "interpose/inherited_options.h"
#include "interpose/kernel_socket.h"
#include "interpose/listener_file.h"
#include "interpose/stream_set.h"
#include "interpose/visible_socket.h"
#include "weft/stream.hpp"

namespace weft::interpose {

class AcceptQueue;

// Thread-safe.
class Socket final : public stream::Stream::Watcher, public std::enable_shared_from_this<Socket> {
 public:
  enum class Phase {
    fresh,  // neither bound nor connected
    bound,
    listening,
    connecting,
    connected,
    relayed,    // the kernel carries the bytes
    abandoned,  // in a child process: was connecting at fork(2), which only the parent continues
  };

  // Returns the program's descriptor in `visible`; `type` as in socket(2). Throws Error.
  static std::shared_ptr<Socket> create(int family, int type, int protocol, int& visible);
  // The program has its descriptor of the client's pair. Throws Error.
  static std::shared_ptr<Socket> accepted(InheritedOptions inherited, AcceptedStream client,
                                          int type);
  // Of a kernel socket that is not connected and does not listen, which is the program's
  // descriptor: another process has made it.
  static std::shared_ptr<Socket> of_kernel_socket(int visible);
  Socket(InheritedOptions options, int type);
  Socket(InheritedOptions options, HiddenPair pair, int type);
  ~Socket() override = default;

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] bool nonblocking() const { return nonblocking_; }
  void set_nonblocking(bool nonblocking);
  // Null unless it is connected or connecting.
  [[nodiscard]] std::shared_ptr<stream::Stream> stream() const;
  // Null unless it listens.
  [[nodiscard]] std::shared_ptr<AcceptQueue> accept_queue() const;
  // The stream, if epoll_wait(2) can look at it itself; null if only the kernel can show it.
  [[nodiscard]] std::shared_ptr<stream::Stream> listable_stream() const;
  [[nodiscard]] SetMember& member() { return member_; }
  [[nodiscard]] const SetMember& member() const { return member_; }
  // Whether the program's descriptor may be readable for the kernel.
  [[nodiscard]] bool shows_bytes();
  // The program is about to receive.
  void note_use() {
    StreamSet* const set = member_.set;
    if (set && !member_.listed) set->note_use(*this);
  }
  // From now on the kernel shows what the socket is ready for.
  void leave_set() {
    if (StreamSet* const set = member_.set) set->leave(*this);
  }
  // True if any socket of this process has a stream.
  [[nodiscard]] static bool some_have_streams() { return StreamCount::all != 0; }
  [[nodiscard]] VisibleSocket& visible() { return visible_; }
  // Puts the visible socket in the place of the program's descriptor, if that is still the kernel
  // socket. Throws Error.
  void open_visible();
  // For a listener: shows whether clients wait to be accepted. `another`: one has just come.
  void show_clients(bool any, bool another);
  // Also those in the kernel's queue. False if that is not possible, or if accept(2) may block.
  [[nodiscard]] bool show_kernel_queue(bool shown);

  // --- Bind, connect, shut down (connecting.cc, socket.cc). All throw Error.
  void bind(const sockaddr* address, socklen_t bytes);
  // `fd`: the program's descriptor.
  void listen(int fd, int backlog);
  // False if connect() only says in which state the socket is.
  [[nodiscard]] bool may_connect() const {
    return phase_ == Phase::fresh || phase_ == Phase::bound;
  }
  // 0 or an errno value, as connect(2).
  int connect(const stream::Address& peer);
  // `how` as in shutdown(2).
  void shut_down(int how);
  [[nodiscard]] bool read_shut() const { return read_shut_; }
  // The connection was lost, as far as the stream knows.
  [[nodiscard]] bool is_lost() const;
  [[nodiscard]] sockaddr_storage local_name() const;
  [[nodiscard]] sockaddr_storage peer_name() const;  // throws Error(ENOTCONN)

  // --- A connection that is left to the kernel (kernel_connection.h)
  // True while the program's descriptor is the kernel socket.
  [[nodiscard]] bool may_become_kernels() const;
  // The program adds it to an epoll set.
  void note_epoll_set();
  [[nodiscard]] int family() const { return kernel_.family(); }
  // After a failed attempt, which the kernel socket remembers.
  void renew_kernel_socket();
  // Notes that `bytes` bytes were sent or received.
  void note_transfer(std::size_t bytes) {
    transfers_.fetch_add(1 + bytes / bytes_of_transfer, std::memory_order_relaxed);
  }

  // --- Descriptors of the program that are this socket (table.cc counts them).
  void add_descriptor() {
    if (++descriptors_ > 1) leave_set();
  }
  // Closes the connection or the listener with the last descriptor.
  void remove_descriptor();

  // --- Options (socket_options.cc)
  // As setsockopt(2) and getsockopt(2): 0, or -1 with errno.
  int set_option(int level, int name, const void* value, socklen_t bytes);
  int get_option(int level, int name, void* value, socklen_t* bytes);
  // The kernel socket; opened again if it was closed. -1 with errno.
  [[nodiscard]] int kernel_fd();
  [[nodiscard]] InheritedOptions inherited_options() const;
  // Sockets report the loss of a connection once; after that, receiving returns 0 and sending fails
  // with EPIPE. True for the caller that has to report it.
  [[nodiscard]] bool claim_loss_report() { return !loss_reported_.exchange(true); }
  // A waiter uses EPOLLET: it needs an event for each arrival.
  void use_edges();
  // A waiter wants to know of the peer's end although there are bytes to receive (EPOLLRDHUP).
  // Otherwise the end is shown behind them, because a relay cannot put bytes into a visible socket
  // that has ended.
  void want_end();
  [[nodiscard]] bool needs_every_arrival() const noexcept override { return uses_edges_; }
  [[nodiscard]] bool looks() const noexcept override { return member_.listed; }
  // -1: no timeout. The visible socket has that of SO_RCVTIMEO, too.
  [[nodiscard]] int receive_timeout_ms() const { return timeouts_.receive_ms; }
  [[nodiscard]] int send_timeout_ms() const { return timeouts_.send_ms; }

  // --- Relay and fork(2) (socket_relay.cc)
  // Lets the kernel carry the bytes from now on. False if the socket is not connected, or shows the
  // peer's end already while bytes are left: then it goes on as it is.
  bool start_relay();
  // What to pass to another process in the place of the program's descriptor `fd`. For a listener
  // it is the kernel socket, from which both processes accept then. Otherwise it is `fd`: the
  // kernel carries the bytes of a connection, once it is made, and a socket that has none is the
  // kernel's in this process, too, because either process may connect it. Throws Error(EOPNOTSUPP)
  // where start_relay() returns false, and if it has failed to connect.
  [[nodiscard]] int descriptor_to_pass(int fd);
  // Before execve(2): a program that inherits `fd` gets the kernel socket, if it is that of a
  // socket without a connection. In a child of vfork(2), which has descriptors of its own, nothing
  // changes for the parent but that it shares a listener from then on. False if `fd` is something
  // else.
  bool pass_to_program(int fd);
  // Around posix_spawn(3): puts the kernel socket of a socket without a connection in the place of
  // `fd`, for the other program. The caller puts the file back. A listener is shared from then on.
  // False if nothing was replaced.
  bool lend_to_program(int fd);
  // Before fork(2): both processes will have the connection or the listener.
  void prepare_fork();
  // In the child, for each descriptor of a listener: puts the kernel socket in its place.
  void replace_with_kernel_socket(int fd) const;
  // In the child: gives up what belongs to the parent, without closing any connection.
  void abandon_in_child();

  // A receiving call has found nothing: the socket must not stay readable by a bell that came late.
  void drop_late_bells();

  // Called by the stream, with its lock held.
  void changed(const stream::Stream::Readiness& now) noexcept override;

 private:
  // Whether a relay begins before the program learns that it is connected.
  enum class Relay : std::uint8_t { none, wanted, starting };
  // The call of connect(2) that is under way or was the last one.
  struct ConnectAttempt {
    stream::Address peer;               // guarded by mutex_
    std::atomic<bool> blocks{false};    // connect(2) waits, and returns the outcome itself
    std::atomic<bool> reported{false};  // connect(2) has returned 0, or accept(2) made the socket
    std::atomic<int> error{0};          // SO_ERROR
    std::atomic<Relay> relay{Relay::none};
  };
  // Addresses that can no longer change, for getsockname(2) and getpeername(2).
  struct FixedNames {
    std::optional<sockaddr_storage> local;
    std::optional<sockaddr_storage> peer;
  };
  // Of SO_RCVTIMEO and SO_SNDTIMEO. -1: none.
  struct Timeouts {
    std::atomic<int> receive_ms{-1};
    std::atomic<int> send_ms{-1};
  };
  // What the visible socket shows of the stream.
  struct Shown {
    std::uint64_t arrived_bytes = 0;
    std::uint64_t bells = 0;
    bool ended = false;
  };

  // Counts the sockets that have a stream.
  struct StreamCount {
    StreamCount() { ++all; }
    ~StreamCount() { --all; }
    StreamCount(const StreamCount&) = delete;
    StreamCount& operator=(const StreamCount&) = delete;
    static inline constinit std::atomic<int> all{0};
  };

  void note_end();
  // The peer's end is shown.
  [[nodiscard]] bool has_ended();
  [[nodiscard]] bool shows_end_before(const stream::Stream::Readiness& now);
  void show(const stream::Stream::Readiness& now);
  void apply(const SocketOption& option);
  int set_kernel_option(int level, int name, const void* value, socklen_t bytes);
  void replace_by_listener_file(int fd);
  void share_listener();
  [[nodiscard]] bool is_visible_file(int fd);
  // The program's `fd` is a file of its own, behind which there is a kernel socket that has no
  // connection.
  [[nodiscard]] bool has_kernel_socket_behind(int fd);
  void start_connecting(const stream::Address& peer);
  [[nodiscard]] int await_connection();
  void await_outcome() const;
  // Finds out why the stream failed to connect. In a thread of its own, as it may wait.
  void resolve_failed_connect();
  void resolve_in_background() noexcept;
  // False if it is to go on as a stream.
  [[nodiscard]] bool relay_in_background() noexcept;
  void begin_as_relay();
  void fail_connect(int error);
  bool fall_back_to_tcp(const stream::Address& peer, Descriptor plain);
  [[nodiscard]] int take_error();

  std::atomic<Phase> phase_{Phase::fresh};
  std::atomic<bool> nonblocking_;
  std::atomic<bool> read_shut_{false};
  std::atomic<bool> write_shut_{false};
  std::atomic<bool> uses_edges_{false};
  std::atomic<bool> wants_end_{false};
  std::atomic<bool> loss_reported_{false};
  Timeouts timeouts_;
  std::atomic<int> descriptors_{0};
  std::atomic<bool> in_epoll_set_{false};
  std::atomic<Transfers> transfers_{0};
  SetMember member_;
  ConnectAttempt connect_;

  // Guards the next five. A stream may be called with it, but it is never taken by changed().
  mutable std::mutex mutex_;
  KernelSocket kernel_;
  FixedNames names_;
  std::shared_ptr<AcceptQueue> accept_queue_;
  std::shared_ptr<stream::Stream> stream_;
  std::optional<StreamCount> counted_;  // while there is one

  // Guards the next three. Taken by changed() with the stream's lock held, so no stream is called
  // with it.
  std::mutex visible_mutex_;
  VisibleSocket visible_;
  Shown shown_;
  std::optional<ListenerFile> listener_file_;
  // The relay's end of the pair. The relay owns it; a child of this process closes its copy.
  int relay_fd_ = -1;
};

}  // namespace weft::interpose
