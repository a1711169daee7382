// Prints the behaviour of TCP sockets, call by call, one line for each result. The kernel's sockets
// and streams under `weft run --sockets` must print the same.
#include "interop/socket_calls.h"

namespace {

void names() {
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  const int here = connect_to(address);
  sockaddr_in who{};
  socklen_t bytes = sizeof who;
  await(listener, POLLIN);
  const int there =
      accept4(listener, reinterpret_cast<sockaddr*>(&who), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
  tell("accept4 non-blocking", fcntl(there, F_GETFL) & O_NONBLOCK);
  tell("accept4 close-on-exec", fcntl(there, F_GETFD));
  sockaddr_in name{};
  bytes = sizeof name;
  getsockname(here, reinterpret_cast<sockaddr*>(&name), &bytes);
  tell("the name there is the name here", name.sin_port == who.sin_port && bytes == sizeof name);
  getpeername(here, reinterpret_cast<sockaddr*>(&name), &bytes);
  tell("the peer is the listener", name.sin_port == address.sin_port);
  tell("nobody waits any more", names_of(look(listener, POLLIN)));
  const int fresh = socket(AF_INET, SOCK_STREAM, 0);
  tell("peer of no connection",
       error_or(getpeername(fresh, reinterpret_cast<sockaddr*>(&name), &bytes)));
  tell("receive without connection", receive_text(fresh));
  tell("send without connection", error_or(send(fresh, "x", 1, MSG_NOSIGNAL)));
  for (const int fd : {listener, here, there, fresh}) close(fd);
}

void options() {
  const Pair pair;
  int value = 1;
  socklen_t bytes = sizeof value;
  setsockopt(pair.here, IPPROTO_TCP, TCP_NODELAY, &value, bytes);
  value = 0;
  getsockopt(pair.here, IPPROTO_TCP, TCP_NODELAY, &value, &bytes);
  tell("TCP_NODELAY", value);
  getsockopt(pair.there, SOL_SOCKET, SO_TYPE, &value, &bytes);
  tell("SO_TYPE", value);
  getsockopt(pair.there, SOL_SOCKET, SO_DOMAIN, &value, &bytes);
  tell("SO_DOMAIN", value);
  getsockopt(pair.there, SOL_SOCKET, SO_ERROR, &value, &bytes);
  tell("SO_ERROR", value);
  tell("no such option", error_or(setsockopt(pair.here, IPPROTO_TCP, 9999, &value, bytes)));
  const timeval soon{0, 20'000};
  setsockopt(pair.here, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
  tell("SO_RCVTIMEO", receive_text(pair.here));
  tcp_info info{};
  bytes = sizeof info;
  getsockopt(pair.here, IPPROTO_TCP, TCP_INFO, &info, &bytes);
  tell("TCP_INFO state", info.tcpi_state);
}

bool is_socket(int fd) {
  struct stat status {};
  struct statx extended {};
  return fstat(fd, &status) == 0 && statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &extended) == 0 &&
         S_ISSOCK(status.st_mode) && S_ISSOCK(extended.stx_mode);
}

void files() {
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  tell("a listener is a socket", is_socket(listener));
  const int copy = dup(listener);
  tell("a copy of a listener is a socket", is_socket(copy));
  const int fresh = socket(AF_INET, SOCK_STREAM, 0);
  tell("a new socket is a socket", is_socket(fresh));
  const Pair pair;
  tell("a connection is a socket", is_socket(pair.here) && is_socket(pair.there));
  int ends[2] = {-1, -1};
  need(pipe(ends) == 0, "pipe");
  tell("a pipe is none", !is_socket(ends[0]));
  for (const int fd : {listener, copy, fresh, ends[0], ends[1]}) close(fd);
}

// A listener for both families, and one for each family on the same port.
void families() {
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  const int both = socket(AF_INET6, SOCK_STREAM, 0);
  if (bind(both, reinterpret_cast<sockaddr*>(&any), sizeof any) != 0) return;  // no IPv6 here
  listen(both, 4);
  sockaddr_in6 name{};
  socklen_t bytes = sizeof name;
  getsockname(both, reinterpret_cast<sockaddr*>(&name), &bytes);
  tell("any address", bytes == sizeof name && IN6_IS_ADDR_UNSPECIFIED(&name.sin6_addr));
  const sockaddr_in four{.sin_family = AF_INET,
                         .sin_port = name.sin6_port,
                         .sin_addr = {htonl(INADDR_LOOPBACK)},
                         .sin_zero{}};
  const int here = connect_to(four);
  const int there = accept(both, reinterpret_cast<sockaddr*>(&any), &bytes);
  tell("IPv4 in IPv6", any.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&any.sin6_addr));
  for (const int fd : {both, here, there}) close(fd);
  sockaddr_in address{};
  const int ipv4 = listen_anywhere(address);
  const int ipv6 = socket(AF_INET6, SOCK_STREAM, 0);
  const int only = 1;
  setsockopt(ipv6, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  any = {};
  any.sin6_family = AF_INET6;
  any.sin6_port = address.sin_port;
  tell("one port, two families",
       error_or(bind(ipv6, reinterpret_cast<sockaddr*>(&any), sizeof any)));
  tell("both listen", error_or(listen(ipv6, 4)));
  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  tell("taken", error_or(bind(taken, reinterpret_cast<sockaddr*>(&address), sizeof address)));
  for (const int fd : {ipv4, ipv6, taken}) close(fd);
}

// --- Bytes ---------------------------------------------------------------------------------------

void pieces() {
  const Pair pair;
  char left[] = "left ";
  char right[] = "right";
  iovec out[] = {{left, 5}, {right, 5}};
  tell("writev", writev(pair.here, out, 2));
  std::array<char, 8> first{};
  std::array<char, 8> second{};
  iovec in[] = {{first.data(), 4}, {second.data(), 6}};
  msghdr message{};
  message.msg_iov = in;
  message.msg_iovlen = 2;
  tell("recvmsg", recvmsg(pair.there, &message, MSG_WAITALL));
  tell("recvmsg got", std::string(first.data()) + "|" + second.data());
  message.msg_iov = out;
  tell("sendmsg", sendmsg(pair.there, &message, 0));
  tell("readv", readv(pair.here, in, 2));
  std::thread slow([&] {
    for (const char* part : {"12", "34", "56"}) say(pair.here, part);
  });
  std::array<char, 7> all{};
  tell("wait for all", recv(pair.there, all.data(), 6, MSG_WAITALL));
  tell("all", std::string(all.data()));
  slow.join();
  std::FILE* const file = std::tmpfile();
  std::fputs("0123456789", file);
  std::fflush(file);
  off_t from = 2;
  tell("sendfile", sendfile(pair.here, fileno(file), &from, 5));
  tell("sendfile ends at", from);
  recv(pair.there, all.data(), 5, MSG_WAITALL);
  tell("sendfile sent", std::string(all.data(), 5));
  std::fclose(file);
}

// Transfers much data in both directions at once, always in the direction that is ready.
void exchange() {
  const Pair pair(SOCK_NONBLOCK);
  fcntl(pair.here, F_SETFL, O_NONBLOCK);
  constexpr std::size_t total = 8 << 20;
  struct Direction {
    int from, to;
    std::size_t sent = 0, got = 0;
    bool same = true;
  };
  std::array<Direction, 2> both{Direction{pair.here, pair.there}, Direction{pair.there, pair.here}};
  std::array<unsigned char, 30011> piece{};
  const auto byte_at = [](std::size_t at) { return static_cast<unsigned char>(at * 7 + at / 251); };
  while (both[0].got < total || both[1].got < total) {
    std::array<pollfd, 2> wait{pollfd{pair.here, POLLIN, 0}, pollfd{pair.there, POLLIN, 0}};
    for (std::size_t i = 0; i < 2; ++i)
      if (both[i].sent < total) wait[i].events = POLLIN | POLLOUT;
    need(poll(wait.data(), 2, -1) > 0, "poll");
    for (std::size_t i = 0; i < 2; ++i) {
      Direction& way = both[i];
      if (wait[i].revents & POLLOUT) {
        const std::size_t most = std::min(piece.size(), total - way.sent);
        for (std::size_t k = 0; k < most; ++k) piece[k] = byte_at(way.sent + k);
        const ssize_t sent = send(way.from, piece.data(), most, 0);
        if (sent > 0) way.sent += static_cast<std::size_t>(sent);
      }
      if (!(wait[1 - i].revents & POLLIN)) continue;
      const ssize_t got = recv(way.to, piece.data(), piece.size(), 0);
      for (ssize_t k = 0; k < got; ++k) {
        way.same = way.same && piece[static_cast<std::size_t>(k)] ==
                                   byte_at(way.got + static_cast<std::size_t>(k));
      }
      if (got > 0) way.got += static_cast<std::size_t>(got);
    }
  }
  tell("exchanged", both[0].same && both[1].same);
}

}  // namespace

int main() {
  signal(SIGPIPE, SIG_IGN);
  names();
  options();
  files();
  families();
  wait_for_sockets();
  receive_up_to_limits();
  pieces();
  exchange();
  share_sockets();
  choose_descriptors();
  std::puts("all done");
}
