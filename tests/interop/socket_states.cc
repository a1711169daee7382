// Makes a long list of calls on a TCP socket in each of its states, and prints one line for each.
// The kernel's sockets and streams under `weft run --sockets` must print the same. Each call has a
// socket of its own, so that none sees what an earlier one has changed.
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>

#include <functional>
#include <utility>

#include "interop/socket_calls.h"

namespace {

// The socket, its peer if it is connected, and the listener where the state needs one.
struct Subject {
  Subject() = default;
  ~Subject() {
    for (const int each : {fd, peer, listener}) {
      if (each >= 0) close(each);
    }
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  int fd = -1;
  int peer = -1;
  int listener = -1;
  sockaddr_in address{};  // of a listener
};

void make_fresh(Subject& subject) {
  subject.fd = socket(AF_INET, SOCK_STREAM, 0);
}
void make_bound(Subject& subject) {
  make_fresh(subject);
  const sockaddr_in name{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero{}};
  need(bind(subject.fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0, "bind");
}
void make_listening(Subject& subject) {
  subject.fd = listen_anywhere(subject.address);
  fcntl(subject.fd, F_SETFL, O_NONBLOCK);
}
void make_connected(Subject& subject) {
  subject.listener = listen_anywhere(subject.address);
  subject.fd = connect_to(subject.address);
  subject.peer = accept(subject.listener, nullptr, nullptr);
}
void make_accepted(Subject& subject) {
  make_connected(subject);
  std::swap(subject.fd, subject.peer);
  await(subject.fd, POLLOUT);
}
void make_readable(Subject& subject) {
  make_connected(subject);
  say(subject.peer, "some text");
  await(subject.fd, POLLIN);
}
void make_ended(Subject& subject) {
  make_connected(subject);
  shutdown(subject.peer, SHUT_WR);
  await(subject.fd, POLLRDHUP);
}
void make_ended_behind_text(Subject& subject) {
  make_connected(subject);
  say(subject.peer, "the last text");
  shutdown(subject.peer, SHUT_WR);
  await(subject.fd, POLLRDHUP);
}
void make_unwritable(Subject& subject) {
  make_connected(subject);
  shutdown(subject.fd, SHUT_WR);
}
void make_unreadable(Subject& subject) {
  make_connected(subject);
  shutdown(subject.fd, SHUT_RD);
}
void make_shut(Subject& subject) {
  make_connected(subject);
  shutdown(subject.fd, SHUT_RDWR);
}
void make_reset(Subject& subject) {
  make_connected(subject);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(subject.peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(std::exchange(subject.peer, -1));
  await(subject.fd, POLLIN);
}
void make_refused(Subject& subject) {
  sockaddr_in address{};
  close(listen_anywhere(address));
  make_fresh(subject);
  connect(subject.fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
}

using State = void (*)(Subject&);
const std::pair<const char*, State> states[] = {
    {"fresh", make_fresh},
    {"bound", make_bound},
    {"listening", make_listening},
    {"connected", make_connected},
    {"accepted", make_accepted},
    {"readable", make_readable},
    {"ended", make_ended},
    {"ended behind text", make_ended_behind_text},
    {"unwritable", make_unwritable},
    {"unreadable", make_unreadable},
    {"shut", make_shut},
    {"reset", make_reset},
    {"refused", make_refused},
};

// --- The calls -----------------------------------------------------------------------------------

constexpr int no_such_flag = 0x08000000;
// The compiler must not know it.
const volatile int negative = -1;
std::array<char, 4096> room;
std::vector<iovec> pieces_of(std::size_t count) {
  return std::vector<iovec>(count, iovec{room.data(), 1});
}

long receive_message(int fd, std::size_t count, int flags = MSG_DONTWAIT) {
  auto pieces = pieces_of(count);
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  return recvmsg(fd, &message, flags);
}
long send_message(int fd, std::size_t count) {
  auto pieces = pieces_of(count);
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  return sendmsg(fd, &message, MSG_NOSIGNAL);
}

// What the kernel writes into a message beside the bytes.
long message_fields(int fd) {
  sockaddr_in name{};
  auto pieces = pieces_of(1);
  char control[64];
  msghdr message{.msg_name = &name,
                 .msg_namelen = sizeof name,
                 .msg_iov = pieces.data(),
                 .msg_iovlen = 1,
                 .msg_control = control,
                 .msg_controllen = sizeof control,
                 .msg_flags = -1};
  const long got = recvmsg(fd, &message, MSG_DONTWAIT);
  if (got < 0) return got;
  return static_cast<long>(message.msg_namelen) * 10000 +
         static_cast<long>(message.msg_controllen) * 100 + (message.msg_flags & ~MSG_EOR);
}

long address_length(int fd) {
  sockaddr_in name{};
  socklen_t bytes = sizeof name;
  const long got =
      recvfrom(fd, room.data(), 1, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&name), &bytes);
  return got < 0 ? got : static_cast<long>(bytes);
}

long option(int fd, int level, int name) {
  std::array<int, 32> value{};
  socklen_t bytes = sizeof value;
  const long done = getsockopt(fd, level, name, value.data(), &bytes);
  return done < 0 ? done : static_cast<long>(bytes) * 1000000 + value[0];
}
template <typename Value>
long set(int fd, int level, int name, const Value& value, socklen_t bytes = sizeof(Value)) {
  return setsockopt(fd, level, name, &value, bytes);
}

long number_by_ioctl(int fd, unsigned long request) {
  int value = -77;
  const long done = ioctl(fd, request, &value);
  return done < 0 ? done : value;
}

sockaddr_in name_of(std::uint32_t host, std::uint16_t port, sa_family_t family = AF_INET) {
  return {.sin_family = family, .sin_port = htons(port), .sin_addr = {htonl(host)}, .sin_zero{}};
}
long connect_to_name(int fd, const sockaddr_in& name, socklen_t bytes = sizeof(sockaddr_in)) {
  return connect(fd, reinterpret_cast<const sockaddr*>(&name), bytes);
}
long bind_to_name(int fd, const sockaddr_in& name, socklen_t bytes = sizeof(sockaddr_in)) {
  return bind(fd, reinterpret_cast<const sockaddr*>(&name), bytes);
}
long send_to_name(int fd, const sockaddr_in& name, socklen_t bytes) {
  return sendto(fd, "x", 1, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&name), bytes);
}

long then_close(long fd) {
  if (fd >= 0) close(static_cast<int>(fd));
  return fd >= 0 ? 0 : fd;
}
long owner(int fd) {
  if (fcntl(fd, F_SETOWN, getpid()) != 0) return -1;
  return fcntl(fd, F_GETOWN) == getpid();
}

using Call = std::function<long(int)>;
using Calls = std::vector<std::pair<const char*, Call>>;

Calls receiving() {
  return {
      {"recv of nothing", [](int fd) { return recv(fd, room.data(), 0, MSG_DONTWAIT); }},
      {"recv", [](int fd) { return recv(fd, room.data(), 4, MSG_DONTWAIT); }},
      {"recv twice",
       [](int fd) {
         (void)recv(fd, room.data(), room.size(), MSG_DONTWAIT);
         return recv(fd, room.data(), room.size(), MSG_DONTWAIT);
       }},
      {"recv MSG_PEEK", [](int fd) { return recv(fd, room.data(), 4, MSG_DONTWAIT | MSG_PEEK); }},
      {"recv MSG_TRUNC", [](int fd) { return recv(fd, nullptr, 4, MSG_DONTWAIT | MSG_TRUNC); }},
      {"recv MSG_PEEK | MSG_TRUNC",
       [](int fd) { return recv(fd, nullptr, 100, MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC); }},
      {"recv MSG_OOB", [](int fd) { return recv(fd, room.data(), 1, MSG_DONTWAIT | MSG_OOB); }},
      {"recv MSG_ERRQUEUE",
       [](int fd) { return recv(fd, room.data(), 1, MSG_DONTWAIT | MSG_ERRQUEUE); }},
      {"recv MSG_WAITALL | MSG_DONTWAIT",
       [](int fd) { return recv(fd, room.data(), 100, MSG_DONTWAIT | MSG_WAITALL); }},
      {"recv MSG_DONTROUTE",
       [](int fd) { return recv(fd, room.data(), 4, MSG_DONTWAIT | MSG_DONTROUTE); }},
      {"recv MSG_MORE", [](int fd) { return recv(fd, room.data(), 4, MSG_DONTWAIT | MSG_MORE); }},
      {"recv of an unknown flag",
       [](int fd) { return recv(fd, room.data(), 4, MSG_DONTWAIT | no_such_flag); }},
      {"recvfrom", address_length},
      {"recvmsg of no pieces", [](int fd) { return receive_message(fd, 0); }},
      {"recvmsg", [](int fd) { return receive_message(fd, 3); }},
      {"recvmsg of many pieces", [](int fd) { return receive_message(fd, IOV_MAX); }},
      {"recvmsg of too many pieces", [](int fd) { return receive_message(fd, IOV_MAX + 1); }},
      {"fields of recvmsg", message_fields},
      {"recvmmsg of none", [](int fd) { return recvmmsg(fd, nullptr, 0, MSG_DONTWAIT, nullptr); }},
      {"read of nothing", [](int fd) { return read(fd, room.data(), 0); }},
      {"readv of no pieces", [](int fd) { return readv(fd, nullptr, 0); }},
      {"readv of a negative count", [](int fd) { return readv(fd, nullptr, negative); }},
      {"readv of too many pieces",
       [](int fd) { return readv(fd, pieces_of(IOV_MAX + 1).data(), IOV_MAX + 1); }},
      {"pread", [](int fd) { return pread(fd, room.data(), 1, 0); }},
  };
}

Calls sending() {
  return {
      {"send of nothing", [](int fd) { return send(fd, "", 0, MSG_NOSIGNAL); }},
      {"send", [](int fd) { return send(fd, "x", 1, MSG_NOSIGNAL); }},
      {"send twice",
       [](int fd) {
         (void)send(fd, "x", 1, MSG_NOSIGNAL);
         return send(fd, "x", 1, MSG_NOSIGNAL);
       }},
      {"send MSG_DONTROUTE", [](int fd) { return send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTROUTE); }},
      {"send MSG_EOR", [](int fd) { return send(fd, "x", 1, MSG_NOSIGNAL | MSG_EOR); }},
      {"send MSG_PEEK", [](int fd) { return send(fd, "x", 1, MSG_NOSIGNAL | MSG_PEEK); }},
      {"send of an unknown flag",
       [](int fd) { return send(fd, "x", 1, MSG_NOSIGNAL | no_such_flag); }},
      {"sendto an address",
       [](int fd) { return send_to_name(fd, name_of(INADDR_LOOPBACK, 9), sizeof(sockaddr_in)); }},
      {"sendto a short address",
       [](int fd) { return send_to_name(fd, name_of(INADDR_LOOPBACK, 9), 3); }},
      {"sendto a long address",
       [](int fd) { return send_to_name(fd, name_of(INADDR_LOOPBACK, 9), 4096); }},
      {"sendmsg of no pieces", [](int fd) { return send_message(fd, 0); }},
      {"sendmsg", [](int fd) { return send_message(fd, 3); }},
      {"sendmsg of too many pieces", [](int fd) { return send_message(fd, IOV_MAX + 1); }},
      {"sendmmsg of none", [](int fd) { return sendmmsg(fd, nullptr, 0, MSG_NOSIGNAL); }},
      {"write of nothing", [](int fd) { return write(fd, "", 0); }},
      {"write", [](int fd) { return write(fd, "x", 1); }},
      {"writev of no pieces", [](int fd) { return writev(fd, nullptr, 0); }},
      {"writev of a negative count", [](int fd) { return writev(fd, nullptr, negative); }},
      {"writev of too many pieces",
       [](int fd) { return writev(fd, pieces_of(IOV_MAX + 1).data(), IOV_MAX + 1); }},
      {"pwrite", [](int fd) { return pwrite(fd, "x", 1, 0); }},
      {"sendfile of no file", [](int fd) { return sendfile(fd, -1, nullptr, 1); }},
  };
}

Calls naming() {
  return {
      {"connect to a null pointer",
       [](int fd) { return connect(fd, nullptr, sizeof(sockaddr_in)); }},
      {"connect to a null pointer of no length", [](int fd) { return connect(fd, nullptr, 0); }},
      {"connect to a short name",
       [](int fd) { return connect_to_name(fd, name_of(INADDR_LOOPBACK, 9), 5); }},
      {"connect to a long name",
       [](int fd) { return connect_to_name(fd, name_of(INADDR_LOOPBACK, 9), 4096); }},
      {"connect to a name of another family",
       [](int fd) { return connect_to_name(fd, name_of(INADDR_LOOPBACK, 9, AF_UNIX)); }},
      {"connect to port 0",
       [](int fd) { return connect_to_name(fd, name_of(INADDR_LOOPBACK, 0)); }},
      {"connect to where nothing listens",
       [](int fd) { return connect_to_name(fd, name_of(INADDR_LOOPBACK, 1)); }},
      {"bind", [](int fd) { return bind_to_name(fd, name_of(INADDR_LOOPBACK, 0)); }},
      {"bind to a null pointer", [](int fd) { return bind(fd, nullptr, sizeof(sockaddr_in)); }},
      {"bind to a short name",
       [](int fd) { return bind_to_name(fd, name_of(INADDR_LOOPBACK, 0), 5); }},
      {"bind to a name of another family",
       [](int fd) { return bind_to_name(fd, name_of(INADDR_LOOPBACK, 0, AF_UNIX)); }},
      {"bind to another host's address",
       [](int fd) { return bind_to_name(fd, name_of(0xC0000201, 0)); }},
      {"listen", [](int fd) { return listen(fd, 1); }},
      {"accept", [](int fd) { return then_close(accept(fd, nullptr, nullptr)); }},
      {"accept4 of an unknown flag", [](int fd) { return accept4(fd, nullptr, nullptr, 3); }},
      {"getsockname of null pointers", [](int fd) { return getsockname(fd, nullptr, nullptr); }},
      {"getsockname of a negative length",
       [](int fd) {
         sockaddr_in name{};
         socklen_t bytes = static_cast<socklen_t>(-1);
         return getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes);
       }},
      {"getsockname of a short length",
       [](int fd) {
         sockaddr_in name{};
         socklen_t bytes = 2;
         const long done = getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes);
         return done < 0 ? done : static_cast<long>(bytes) * 100 + name.sin_family;
       }},
      {"getpeername",
       [](int fd) {
         sockaddr_in name{};
         socklen_t bytes = sizeof name;
         return getpeername(fd, reinterpret_cast<sockaddr*>(&name), &bytes);
       }},
      {"getpeername of null pointers", [](int fd) { return getpeername(fd, nullptr, nullptr); }},
  };
}

Calls ending() {
  return {
      {"shutdown SHUT_RD", [](int fd) { return shutdown(fd, SHUT_RD); }},
      {"shutdown SHUT_WR", [](int fd) { return shutdown(fd, SHUT_WR); }},
      {"shutdown SHUT_RDWR", [](int fd) { return shutdown(fd, SHUT_RDWR); }},
      {"shutdown SHUT_WR twice",
       [](int fd) {
         (void)shutdown(fd, SHUT_WR);
         return shutdown(fd, SHUT_WR);
       }},
      {"shutdown of no direction", [](int fd) { return shutdown(fd, 99); }},
      {"close twice",
       [](int fd) {
         const int copy = dup(fd);
         close(copy);
         return close(copy);
       }},
  };
}

Calls options() {
  Calls calls;
  const std::tuple<const char*, int, int> read[] = {
      {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN},
      {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST},
      {"SO_DOMAIN", SOL_SOCKET, SO_DOMAIN},
      {"SO_ERROR", SOL_SOCKET, SO_ERROR},
      {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE},
      {"SO_LINGER", SOL_SOCKET, SO_LINGER},
      {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE},
      {"SO_PASSCRED", SOL_SOCKET, SO_PASSCRED},
      {"SO_PEERSEC", SOL_SOCKET, SO_PEERSEC},
      {"SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL},
      {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT},
      {"SO_RCVTIMEO", SOL_SOCKET, SO_RCVTIMEO},
      {"SO_SNDLOWAT", SOL_SOCKET, SO_SNDLOWAT},
      {"SO_TYPE", SOL_SOCKET, SO_TYPE},
      {"TCP_CORK", IPPROTO_TCP, TCP_CORK},
      {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE},
      {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT},
      {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT},
      {"IP_TOS", IPPROTO_IP, IP_TOS},
      {"IP_TTL", IPPROTO_IP, IP_TTL},
      {"an unknown option", SOL_SOCKET, 9999},
      {"an option of an unknown level", 9999, 1},
      {"IPV6_V6ONLY", IPPROTO_IPV6, IPV6_V6ONLY},
  };
  for (const auto& [name, level, number] : read) {
    calls.emplace_back(name, [level, number](int fd) { return option(fd, level, number); });
  }
  return calls;
}

Calls setting() {
  return {
      {"getsockopt of a negative length",
       [](int fd) {
         int value = 0;
         socklen_t bytes = static_cast<socklen_t>(-1);
         return getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &bytes);
       }},
      {"getsockopt of one byte",
       [](int fd) {
         int value = 0;
         socklen_t bytes = 1;
         return getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &bytes) * 10 + static_cast<int>(bytes);
       }},
      {"getsockopt of null pointers",
       [](int fd) { return getsockopt(fd, SOL_SOCKET, SO_TYPE, nullptr, nullptr); }},
      {"SO_LINGER too short", [](int fd) { return set(fd, SOL_SOCKET, SO_LINGER, 1); }},
      {"SO_RCVTIMEO out of range",
       [](int fd) {
         return set(fd, SOL_SOCKET, SO_RCVTIMEO, timeval{0, 2000000});
       }},
      {"SO_RCVTIMEO negative",
       [](int fd) {
         return set(fd, SOL_SOCKET, SO_RCVTIMEO, timeval{-1, 0});
       }},
      {"TCP_NODELAY too short", [](int fd) { return set(fd, IPPROTO_TCP, TCP_NODELAY, 1, 1); }},
      {"TCP_NODELAY at a null pointer",
       [](int fd) { return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, nullptr, sizeof(int)); }},
      {"TCP_KEEPIDLE of 0", [](int fd) { return set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 0); }},
      {"TCP_CONGESTION unknown",
       [](int fd) { return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nosuch", 6); }},
      {"SO_BINDTODEVICE unknown",
       [](int fd) { return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "nosuch0", 8); }},
      {"IP_TTL out of range", [](int fd) { return set(fd, IPPROTO_IP, IP_TTL, 999); }},
      {"SO_ERROR cannot be set", [](int fd) { return set(fd, SOL_SOCKET, SO_ERROR, 1); }},
      {"SO_RCVLOWAT", [](int fd) { return set(fd, SOL_SOCKET, SO_RCVLOWAT, 3); }},
      {"SO_REUSEADDR", [](int fd) { return set(fd, SOL_SOCKET, SO_REUSEADDR, 1); }},
      {"IPV6_V6ONLY", [](int fd) { return set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1); }},
  };
}

Calls descriptors() {
  return {
      {"FIONREAD", [](int fd) { return number_by_ioctl(fd, FIONREAD); }},
      {"SIOCOUTQ", [](int fd) { return number_by_ioctl(fd, SIOCOUTQ); }},
      {"SIOCOUTQNSD", [](int fd) { return number_by_ioctl(fd, SIOCOUTQNSD); }},
      {"SIOCATMARK", [](int fd) { return number_by_ioctl(fd, SIOCATMARK); }},
      {"SIOCGPGRP", [](int fd) { return number_by_ioctl(fd, SIOCGPGRP); }},
      {"FIONREAD to a null pointer", [](int fd) { return ioctl(fd, FIONREAD, nullptr); }},
      {"an unknown ioctl", [](int fd) { return ioctl(fd, 0xDEAD, nullptr); }},
      {"isatty", [](int fd) { return isatty(fd) == 1 ? 1L : -1L; }},
      {"F_SETOWN", owner},
      {"O_ASYNC", [](int fd) { return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC); }},
      {"F_GETFL", [](int fd) { return fcntl(fd, F_GETFL); }},
      {"F_GETFD", [](int fd) { return fcntl(fd, F_GETFD); }},
      {"F_SETPIPE_SZ", [](int fd) { return fcntl(fd, F_SETPIPE_SZ, 4096); }},
      {"F_DUPFD", [](int fd) { return then_close(fcntl(fd, F_DUPFD, 100)); }},
      {"F_DUPFD of a negative number", [](int fd) { return fcntl(fd, F_DUPFD, -1); }},
      {"an unknown fcntl", [](int fd) { return fcntl(fd, 9999, 0); }},
      {"dup2 to itself", [](int fd) { return dup2(fd, fd) == fd; }},
      {"dup2 to a negative number", [](int fd) { return dup2(fd, -1); }},
      {"dup3 to itself", [](int fd) { return dup3(fd, fd, 0); }},
      {"lseek", [](int fd) { return lseek(fd, 0, SEEK_CUR); }},
      {"ftruncate", [](int fd) { return ftruncate(fd, 0); }},
      {"fsync", [](int fd) { return fsync(fd); }},
  };
}

// What differs and is described in docs/sockets.md, or what is an accident of the kernel's own: a
// socket that was reset can be bound again, and the FIN counts as a byte while it is under way.
bool differs(const std::string& state, const std::string& call) {
  const bool has_sent_end = state == "shut" || state == "unwritable" || state == "refused";
  return (call.starts_with("SIOCOUTQ") && has_sent_end) ||
         (state == "reset" && (call == "bind" || call == "recvmmsg of none")) ||
         (state == "listening" && call == "recv MSG_OOB") ||
         (call == "events" && (state == "fresh" || state == "bound" || state == "refused"));
}

// IPv6 sockets, with and without IPV6_V6ONLY, and addresses of both families.
void mix_families() {
  sockaddr_in four{};
  const int listener = listen_anywhere(four);
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = four.sin_port;
  inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
  const auto* const as_four = reinterpret_cast<const sockaddr*>(&four);
  const auto* const as_six = reinterpret_cast<const sockaddr*>(&mapped);
  for (const int only : {0, 1}) {
    const std::string prefix = only ? "IPV6_V6ONLY: " : "both families: ";
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd < 0) return;  // no IPv6 here
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    tell((prefix + "IPv4 name").c_str(), error_or(connect(fd, as_four, sizeof four)));
    tell((prefix + "mapped name").c_str(), error_or(connect(fd, as_six, sizeof mapped)));
    close(fd);
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    mapped.sin6_port = 0;
    tell((prefix + "bind to a mapped name").c_str(), error_or(bind(fd, as_six, sizeof mapped)));
    mapped.sin6_port = four.sin_port;
    close(fd);
  }
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  tell("IPv6 name for IPv4", error_or(connect(fd, as_six, sizeof mapped)));
  close(fd);
  close(listener);
}

// A reset shows POLLERR only where the peer has given back its end of the connection by then.
short told_events(const std::string& state) {
  return static_cast<short>(state == "reset" ? ~POLLERR : ~0);
}

void look_at_events() {
  for (const auto& [state, make] : states) {
    if (differs(state, "events")) continue;
    const short told = told_events(state);
    Subject subject;
    make(subject);
    constexpr short all = POLLIN | POLLOUT | POLLRDHUP | POLLPRI;
    const std::string prefix = std::string(state) + ": ";
    tell((prefix + "poll").c_str(), names_of(look(subject.fd, all) & told));
    const int epoll = epoll_create1(0);
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP, .data = {.fd = subject.fd}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, subject.fd, &event);
    event.events = 0;
    epoll_wait(epoll, &event, 1, 0);
    tell((prefix + "epoll_wait").c_str(), names_of(event.events & static_cast<unsigned>(told)));
    close(epoll);
    fd_set in, out, except;
    for (fd_set* each : {&in, &out, &except}) {
      FD_ZERO(each);
      FD_SET(subject.fd, each);
    }
    timeval none{};
    const int ready = select(subject.fd + 1, &in, &out, &except, &none);
    tell((prefix + "select").c_str(), ready * 1000 + FD_ISSET(subject.fd, &in) * 100 +
                                          FD_ISSET(subject.fd, &out) * 10 +
                                          FD_ISSET(subject.fd, &except));
  }
}

}  // namespace

int main() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGIO, SIG_IGN);
  for (const auto& group :
       {receiving(), sending(), naming(), ending(), options(), setting(), descriptors()}) {
    for (const auto& [name, call] : group) {
      for (const auto& [state, make] : states) {
        if (differs(state, name)) continue;
        Subject subject;
        make(subject);
        errno = 0;
        tell((std::string(state) + ": " + name).c_str(), error_or(call(subject.fd)));
      }
    }
  }
  look_at_events();
  mix_families();
  std::puts("all done");
}
