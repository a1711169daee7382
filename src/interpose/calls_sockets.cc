// Replacements of the functions that create, connect and shut down sockets.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "interpose/accept_queue.h"
#include "interpose/accepted_client.h"
#include "interpose/address.h"
#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/kernel_connection.h"
#include "interpose/refusal.h"
#include "interpose/relay_name.h"
#include "interpose/shared_listener.h"
#include "interpose/table.h"
#include "interpose/unfinished_clients.h"
#include "interpose/unseen_rings.h"
#include "weft/error.hpp"

using namespace weft::interpose;

namespace {

// The program's descriptor of an accepted client, at the lowest free number, as accept(2) promises.
// -1 with errno.
int open_descriptor(const AcceptedClient& client, int type) {
  if (const auto* accepted = std::get_if<AcceptedStream>(&client)) {
    return accepted->pair.open_visible(type);
  }
  // This one was moved to a high number.
  const int plain = std::get<Descriptor>(client).get();
  set_blocking(plain, (type & SOCK_NONBLOCK) == 0);
  return next::fcntl(plain, type & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, nullptr);
}

// Returns a new descriptor of the program for an accepted client. -1 with errno: then `client` is
// unchanged.
int give_descriptor(AcceptedClient& client, InheritedOptions inherited, int type, sockaddr* address,
                    socklen_t* bytes) {
  Descriptor visible(open_descriptor(client, type));
  if (!visible.valid()) return -1;
  AcceptQueue::note_accepted();
  if (auto* accepted = std::get_if<AcceptedStream>(&client)) {
    auto made = Socket::accepted(std::move(inherited), std::move(*accepted), type);
    copy_out(made->peer_name(), address, bytes);
    // The files of stdio that exist from the start have these numbers: see fdopen().
    if (visible.get() <= STDERR_FILENO || has_ring()) (void)made->start_relay();
    put(visible.get(), std::move(made));
    return visible.release();
  }
  forget(visible.get());
  if (address && bytes) next::getpeername(visible.get(), address, bytes);
  return visible.release();
}

// Of a descriptor that is unknown here: a kernel socket, or one end of a relay's pipe, which this
// program has got by fork(2) and exec.
template <typename Kernel>
int name_of_other(int fd, sockaddr* address, socklen_t* bytes, const Kernel& kernel,
                  sockaddr_storage RelayNames::*which) {
  const socklen_t room = bytes ? *bytes : 0;
  const int result = kernel(fd, address, bytes);
  if (result != 0 || !address || room < sizeof address->sa_family) return result;
  if (address->sa_family != AF_UNIX) return result;
  const auto names = relay_names(fd);
  if (!names) return result;
  *bytes = room;
  copy_out((*names).*which, address, bytes);
  return 0;
}

constexpr std::chrono::milliseconds pause_without_room{1};

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return next::poll(&entry, 1, 0) > 0;
}

// Serves a client, or closes it: then returns nothing. `why` is what to count for that.
std::optional<AcceptedClient> serve(Descriptor connection, Protocol protocol, Refusal why,
                                    const InheritedOptions& inherited) {
  if (protocol == Protocol::wakes) return std::nullopt;
  try {
    if (protocol == Protocol::stream) {
      return connect_stream(std::move(connection), stream_options(inherited));
    }
    if (protocol == Protocol::plain) return serve_plain(std::move(connection), why);
    if (protocol == Protocol::agreed) return serve_agreed(std::move(connection));
    shut(connection);
    count_refusal(why);
  } catch (const weft::Error&) {
    // The client has disconnected meanwhile.
  }
  return std::nullopt;
}

// Takes clients from the kernel's queue until one is to be served. Returns nothing, with errno, if
// the queue is empty or on an error. Clients whose request is not whole go to `queue`, which shows
// by the visible socket when one of them is connected; so this never blocks. ENOBUFS: `queue` has
// no room for such clients at the moment.
std::optional<AcceptedClient> accept_from_kernel_queue(int kernel,
                                                       const InheritedOptions& inherited,
                                                       AcceptQueue& queue) {
  while (true) {
    if (!AcceptQueue::make_room_for_arriving()) {
      errno = ENOBUFS;
      return std::nullopt;
    }
    Descriptor connection = accept_at_once(kernel);
    if (!connection.valid()) return std::nullopt;
    connection = move_high(std::move(connection));
    const FirstBytes found = look_at_first_bytes(connection.get());
    if (found.protocol == Protocol::unknown) {
      queue.add_arriving(std::move(connection));
      continue;
    }
    auto client = serve(std::move(connection), found.protocol, refusal_of(found), inherited);
    if (client) return client;
  }
}

// The next client of a socket from which the program accepts directly: its descriptor; or -1 with
// errno. Returns nothing if another kind of client came, which `queue` has now.
std::optional<int> accept_directly(int kernel, AcceptQueue& queue, sockaddr* address,
                                   socklen_t* bytes, int type) {
  while (true) {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    const int fd = next::accept4(kernel, reinterpret_cast<sockaddr*>(&name), &size, type);
    if (fd < 0) return fd;
    forget(fd);
    const FirstBytes found = look_at_first_bytes(fd);
    if (found.protocol != Protocol::agreed) {
      if (type & SOCK_NONBLOCK) set_blocking(fd, true);
      queue.add_other(move_high(Descriptor(fd)), found);
      return std::nullopt;
    }
    if (!take_key(fd)) {
      next::close(fd);
      continue;
    }
    queue.note_accepted_directly();
    copy_out(name, address, bytes);
    return fd;
  }
}

// The program gets a client of `listener`. Without a descriptor for it the client goes on waiting.
int give_client(Socket& listener, AcceptQueue& queue, AcceptedClient client, sockaddr* address,
                socklen_t* bytes, int type) {
  const int visible = give_descriptor(client, listener.inherited_options(), type, address, bytes);
  const int error = errno;
  if (visible < 0) queue.put_back(std::move(client));
  errno = error;
  return visible;
}

// Clients that were connected ahead come first. A blocking call waits for the visible socket, which
// is readable while any client waits.
int accept_from(Socket& listener, sockaddr* address, socklen_t* bytes, int type) {
  const auto queue = listener.accept_queue();
  if (!queue) return fail_with(EINVAL);
  while (true) {
    if (queue->accepts_directly()) {
      const auto fd = accept_directly(listener.kernel_fd(), *queue, address, bytes, type);
      if (fd) return *fd;
    }
    if (auto client = queue->take()) {
      return give_client(listener, *queue, std::move(*client), address, bytes, type);
    }
    if (!queue->is_open()) return fail_with(EINVAL);
    if (const int error = queue->shortage(); error != 0) return fail_with(error);
    if (queue->uses_kernel_queue() && is_readable(listener.kernel_fd())) {
      auto client =
          accept_from_kernel_queue(listener.kernel_fd(), listener.inherited_options(), *queue);
      // recheck() may change errno, which accept_from_kernel_queue() has set.
      const int error = errno;
      queue->recheck(false);
      if (client) {
        queue->accept_ahead();
        return give_client(listener, *queue, std::move(*client), address, bytes, type);
      }
      if (error == ENOBUFS && !listener.nonblocking()) {
        // Many clients have come at once without a request. The kernel's queue stays readable, so
        // there is nothing to wait for but time: some of them make room soon.
        const Waiting wait;
        if (wait.ends_receiving()) return fail_with(EINTR);
        std::this_thread::sleep_for(pause_without_room);
        continue;
      }
      if (error != EAGAIN && error != ENOBUFS) return fail_with(error);
    }
    if (listener.nonblocking()) return fail_with(EAGAIN);
    const int failed = listener.visible().await_readable();
    if (failed == EINTR || failed == EAGAIN) return fail_with(failed);
  }
}

// Removes the connection by which this process has made `kernel` readable (UnfinishedClients): the
// program finds a client now, and would find none when that connection were reported after it.
void remove_call(int kernel, UnfinishedClients& unfinished) {
  while (unfinished.is_calling(kernel)) {
    Descriptor connection = accept_at_once(kernel);
    if (!connection.valid()) return;
    if (look_at_first_bytes(connection.get()).protocol == Protocol::wakes) return;
    unfinished.add(kernel, move_high(std::move(connection)));
  }
}

// accept4(2), which waits where the program has not made the socket non-blocking.
int accept_or_wait(int kernel) {
  const Waiting wait;
  if (wait.ends_receiving()) return fail_with(EINTR);
  return next::accept4(kernel, nullptr, nullptr, SOCK_CLOEXEC);
}

// The next client of a socket without an AcceptQueue. Returns nothing, with errno, on an error or
// where none is there. While clients have not finished their requests, this waits for them and for
// the socket at once. Another process may then be the one to accept the socket's client, so that
// accept4(2) waits for the next one, or until a client is to be served here.
std::optional<AcceptedClient> accept_inherited(int kernel, const InheritedOptions& inherited) {
  auto& unfinished = UnfinishedClients::instance();
  const bool waits = listener_blocks(kernel);
  remove_call(kernel, unfinished);
  while (true) {
    if (auto arrived = unfinished.take(kernel)) {
      auto client =
          serve(std::move(arrived->connection), arrived->protocol, arrived->why, inherited);
      if (client) return client;
      continue;
    }
    const auto waited = unfinished.wait(kernel, waits);
    if (waited == UnfinishedClients::Waited::interrupted) errno = EINTR;
    if (waited == UnfinishedClients::Waited::interrupted) return std::nullopt;
    if (waited == UnfinishedClients::Waited::client) continue;
    if (waits) unfinished.watch(kernel);
    Descriptor connection(accept_or_wait(kernel));
    if (!connection.valid() && errno == EAGAIN && waits && was_disturbed(kernel)) continue;
    if (!connection.valid()) return std::nullopt;
    connection = move_high(std::move(connection));
    const FirstBytes found = look_at_first_bytes(connection.get());
    if (found.protocol == Protocol::unknown) {
      unfinished.add(kernel, std::move(connection));
      continue;
    }
    auto client = serve(std::move(connection), found.protocol, refusal_of(found), inherited);
    if (client) return client;
  }
}

// Accepts from a kernel socket that this process has inherited: by fork(2) or from the program that
// started it.
int accept_from_kernel(int listener, sockaddr* address, socklen_t* bytes, int type) {
  const InheritedOptions inherited = inherited_options_of(listener);
  auto client = accept_inherited(listener, inherited);
  const int error = errno;
  UnfinishedClients::instance().watch(listener);
  errno = error;
  return client ? give_descriptor(*client, inherited, type, address, bytes) : -1;
}

// A listener that is not in the table may be inherited or be of another protocol, such as a UNIX
// socket; SO_PROTOCOL distinguishes them.
bool is_tcp(int fd) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  return next::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
         protocol == IPPROTO_TCP;
}

bool is_unused_tcp(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  return is_tcp(fd) && next::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
         info.tcpi_state == TCP_CLOSE;
}

// Finds a socket that listens or connects now. It may have come from another process: by fork(2)
// and exec, or in a message (SCM_RIGHTS). False with errno.
bool find_or_take(int fd, std::shared_ptr<Socket>& socket) {
  socket = find(fd);
  if (socket || !is_unused_tcp(fd)) return true;
  return guarded([&] {
           socket = Socket::of_kernel_socket(fd);
           put(fd, socket);
           return 0;
         }) == 0;
}

// Whether a socket of its family, with IPV6_V6ONLY or not, may connect to the name (ipv6(7)). An
// IPv4 name is shorter than any that an IPv6 socket takes. 0 or an errno value.
int family_error(const Socket& socket, const sockaddr* name, socklen_t bytes) {
  if (name->sa_family == AF_INET && socket.family() == AF_INET6) {
    return bytes < sizeof(sockaddr_in6) - sizeof(std::uint32_t) ? EINVAL : EAFNOSUPPORT;
  }
  if (name->sa_family == AF_INET6 && socket.family() == AF_INET) {
    return EAFNOSUPPORT;
  }
  if (name->sa_family != AF_INET6 || bytes < sizeof(sockaddr_in6)) return 0;
  const InheritedOptions options = socket.inherited_options();
  const SocketOption* const only = options.find(IPPROTO_IPV6, IPV6_V6ONLY);
  const bool is_only = only && !only->value.empty() && only->value[0] != std::byte{0};
  const auto& host = reinterpret_cast<const sockaddr_in6*>(name)->sin6_addr;
  return is_only && IN6_IS_ADDR_V4MAPPED(&host) ? ENETUNREACH : 0;
}

}  // namespace

WEFT_INTERPOSED int socket(int family, int type, int protocol) {
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  const bool ours = (family == AF_INET || family == AF_INET6) && kind == SOCK_STREAM &&
                    (protocol == 0 || protocol == IPPROTO_TCP);
  if (!ours) {
    const int made = next::socket(family, type, protocol);
    // The C library may have closed an earlier socket of that number by an internal function.
    if (made >= 0) forget(made);
    return made;
  }
  return guarded([&] {
    int visible = -1;
    auto made = Socket::create(family, type, protocol, visible);
    put(visible, std::move(made));
    return visible;
  });
}

WEFT_INTERPOSED int bind(int fd, const sockaddr* address, socklen_t bytes) {
  const auto socket = find(fd);
  if (!socket) return next::bind(fd, address, bytes);
  return guarded([&] {
    socket->bind(address, bytes);
    return 0;
  });
}

WEFT_INTERPOSED int listen(int fd, int backlog) {
  std::shared_ptr<Socket> socket;
  if (!find_or_take(fd, socket)) return -1;
  if (!socket) return next::listen(fd, backlog);
  return guarded([&] {
    socket->listen(fd, backlog);
    return 0;
  });
}

WEFT_INTERPOSED int accept4(int fd, sockaddr* address, socklen_t* bytes, int type) {
  const auto socket = find(fd);
  if (!socket && !is_tcp(fd)) return next::accept4(fd, address, bytes, type);
  if (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) return fail_with(EINVAL);
  return guarded([&] {
    return socket ? accept_from(*socket, address, bytes, type)
                  : accept_from_kernel(fd, address, bytes, type);
  });
}

WEFT_INTERPOSED int accept(int fd, sockaddr* address, socklen_t* bytes) {
  return accept4(fd, address, bytes, 0);
}

WEFT_INTERPOSED int connect(int fd, const sockaddr* address, socklen_t bytes) {
  std::shared_ptr<Socket> socket;
  if (!find_or_take(fd, socket)) return -1;
  if (!socket) return next::connect(fd, address, bytes);
  return guarded([&] {
    check_name(address, bytes);
    // The kernel looks at the name only for a socket that may connect.
    if (!socket->may_connect() && bytes >= sizeof(sa_family_t)) {
      const int done = socket->connect({});
      return done == 0 ? 0 : fail_with(done);
    }
    const auto peer = to_address(address, bytes, true);
    if (const int wrong = family_error(*socket, address, bytes)) return fail_with(wrong);
    const auto by_kernel = connect_by_kernel(socket, fd, peer);
    const int error = by_kernel ? *by_kernel : socket->connect(peer);
    return error == 0 ? 0 : fail_with(error);
  });
}

WEFT_INTERPOSED int shutdown(int fd, int how) {
  const auto socket = find_stream(fd);
  if (!socket) return next::shutdown(fd, how);
  return guarded([&] {
    socket->shut_down(how);
    return 0;
  });
}

WEFT_INTERPOSED int getsockname(int fd, sockaddr* address, socklen_t* bytes) {
  const auto socket = find(fd);
  if (!socket) return name_of_other(fd, address, bytes, next::getsockname, &RelayNames::local);
  return guarded([&] {
    const sockaddr_storage name = socket->local_name();
    if (!address || !bytes) return fail_with(EFAULT);
    copy_out(name, address, bytes);
    return 0;
  });
}

WEFT_INTERPOSED int getpeername(int fd, sockaddr* address, socklen_t* bytes) {
  const auto socket = find(fd);
  if (!socket) return name_of_other(fd, address, bytes, next::getpeername, &RelayNames::peer);
  return guarded([&] {
    if (socket->is_lost()) return fail_with(ENOTCONN);
    const sockaddr_storage name = socket->peer_name();
    if (!address || !bytes) return fail_with(EFAULT);
    copy_out(name, address, bytes);
    return 0;
  });
}

WEFT_INTERPOSED int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) {
  const auto socket = find(fd);
  if (!socket) return next::setsockopt(fd, level, name, value, bytes);
  return guarded([&] { return socket->set_option(level, name, value, bytes); });
}

WEFT_INTERPOSED int getsockopt(int fd, int level, int name, void* value, socklen_t* bytes) {
  const auto socket = find(fd);
  if (!socket) return next::getsockopt(fd, level, name, value, bytes);
  return guarded([&] { return socket->get_option(level, name, value, bytes); });
}
