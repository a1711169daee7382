// What TCP sockets do, call by call: prints a line for each finding. The kernel's sockets and
// streams under `weft run --sockets` must print the same.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

void tell(const char* what, const std::string& found) {
  std::printf("%s: %s\n", what, found.c_str());
  std::fflush(stdout);
}
void tell(const char* what, long found) {
  tell(what, std::to_string(found));
}
std::string error_or(long done) {
  return done < 0 ? strerrorname_np(errno) : std::to_string(done);
}
void need(bool good, const char* what) {
  if (good) return;
  std::printf("cannot go on: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

std::string names_of(unsigned events) {
  std::string names;
  const std::pair<unsigned, const char*> known[] = {{POLLIN, "in "},       {POLLOUT, "out "},
                                                    {POLLERR, "err "},     {POLLHUP, "hup "},
                                                    {POLLRDHUP, "rdhup "}, {POLLNVAL, "nval "}};
  for (const auto& [bit, name] : known) names += events & bit ? name : "";
  return names.empty() ? "nothing" : names;
}

int listen_anywhere(sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  address = {
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero{}};
  socklen_t bytes = sizeof address;
  need(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0, "bind");
  need(listen(fd, 8) == 0, "listen");
  need(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0, "getsockname");
  return fd;
}

int connect_to(const sockaddr_in& address, int type = 0) {
  const int fd = socket(AF_INET, SOCK_STREAM | type, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    need(errno == EINPROGRESS, "connect");
  }
  return fd;
}

// A connection, both ends in this process: it is made before anybody accepts.
struct Pair {
  explicit Pair(int type = 0) {
    sockaddr_in address{};
    const int listener = listen_anywhere(address);
    here = connect_to(address);
    there = accept4(listener, nullptr, nullptr, type);
    need(there >= 0, "accept4");
    close(listener);
  }
  ~Pair() {
    close(here);
    close(there);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  int here = -1;
  int there = -1;
};

unsigned await(int fd, short events) {
  pollfd entry{fd, events, 0};
  need(poll(&entry, 1, -1) == 1, "poll");
  return static_cast<unsigned>(entry.revents);
}
unsigned look(int fd, short events) {
  pollfd entry{fd, events, 0};
  need(poll(&entry, 1, 0) >= 0, "poll");
  return static_cast<unsigned>(entry.revents);
}
std::string receive_text(int fd, int flags = 0) {
  std::array<char, 256> text{};
  const ssize_t got = recv(fd, text.data(), text.size(), flags);
  return got < 0 ? error_or(got) : std::string(text.data(), static_cast<std::size_t>(got));
}
void say(int fd, const char* text) {
  need(send(fd, text, std::strlen(text), 0) == static_cast<ssize_t>(std::strlen(text)), "send");
}

// --- Names, flags, options -----------------------------------------------------------------------

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

// A listener for both families, and one for each on the same port.
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

// --- Connecting ----------------------------------------------------------------------------------

void connecting() {
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  const int fd = connect_to(address, SOCK_NONBLOCK);
  tell("connected", names_of(await(fd, POLLOUT)));
  int error = -1;
  socklen_t bytes = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
  tell("connected with", error);
  tell("connect again",
       error_or(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address)));
  close(fd);
  close(listener);
  const int blocking = socket(AF_INET, SOCK_STREAM, 0);
  for (const char* turn : {"refused", "refused again"}) {
    tell(turn, error_or(connect(blocking, reinterpret_cast<sockaddr*>(&address), sizeof address)));
  }
  close(blocking);
  const int refused = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const int epoll = epoll_create1(0);  // from before it connects
  epoll_event event{.events = EPOLLOUT | EPOLLET, .data = {.fd = refused}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, refused, &event);
  while (epoll_wait(epoll, &event, 1, 0) > 0) continue;
  need(connect(refused, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0, "refusal");
  if (errno == EINPROGRESS) {
    need(epoll_wait(epoll, &event, 1, -1) == 1, "epoll_wait");
    tell("refused later", names_of(event.events & (EPOLLERR | EPOLLHUP | EPOLLOUT)));
    getsockopt(refused, SOL_SOCKET, SO_ERROR, &error, &bytes);
    tell("refused with", strerrorname_np(error));
  }
  close(refused);
  close(epoll);
}

// --- Waiting -------------------------------------------------------------------------------------

void polling() {
  const Pair pair;
  constexpr short all = POLLIN | POLLOUT | POLLRDHUP;
  tell("idle", names_of(await(pair.there, all)));
  say(pair.here, "abc");
  await(pair.there, POLLIN);
  tell("with bytes", names_of(look(pair.there, all)));
  int bytes = 0;
  ioctl(pair.there, FIONREAD, &bytes);
  tell("FIONREAD", bytes);
  tell("peek", receive_text(pair.there, MSG_PEEK));
  tell("receive", receive_text(pair.there));
  tell("empty", names_of(look(pair.there, all)));
  tell("no bytes", receive_text(pair.there, MSG_DONTWAIT));
  fd_set readable;
  fd_set writable;
  FD_ZERO(&readable);
  FD_ZERO(&writable);
  FD_SET(pair.here, &readable);
  FD_SET(pair.here, &writable);
  say(pair.there, "d");
  await(pair.here, POLLIN);
  tell("select", select(pair.here + 1, &readable, &writable, nullptr, nullptr));
  shutdown(pair.there, SHUT_WR);
  await(pair.here, POLLRDHUP);
  tell("ended", names_of(look(pair.here, all)));
  tell("the last byte", receive_text(pair.here));
  tell("the end", receive_text(pair.here));
  tell("the end once more", receive_text(pair.here));
  say(pair.here, "still");
  tell("the other direction", receive_text(pair.there));
  tell("after the end", error_or(send(pair.there, "x", 1, MSG_NOSIGNAL)));
  shutdown(pair.here, SHUT_WR);
  await(pair.there, POLLRDHUP);
  tell("both ended", names_of(await(pair.there, all) & ~POLLRDHUP));
}

struct Epoll {
  Epoll() : fd(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Epoll() { close(fd); }
  Epoll(const Epoll&) = delete;
  Epoll& operator=(const Epoll&) = delete;
  void control(int operation, int which, unsigned events) const {
    epoll_event event{.events = events, .data = {.fd = which}};
    need(epoll_ctl(fd, operation, which, &event) == 0, "epoll_ctl");
  }
  [[nodiscard]] std::string wait(int timeout_ms) const {
    std::array<epoll_event, 4> events{};
    const int count = epoll_wait(fd, events.data(), events.size(), timeout_ms);
    std::string found;
    for (int i = 0; i < count; ++i) found += names_of(events[static_cast<std::size_t>(i)].events);
    return found.empty() ? "nothing" : found;
  }
  int fd;
};

void epoll_levels() {
  const Pair pair;
  const Epoll epoll;
  epoll.control(EPOLL_CTL_ADD, pair.there, EPOLLIN);
  tell("level, idle", epoll.wait(0));
  say(pair.here, "ab");
  tell("level", epoll.wait(-1));
  tell("level, still", epoll.wait(0));
  tell("level, read", receive_text(pair.there));
  tell("level, afterwards", epoll.wait(0));
  epoll.control(EPOLL_CTL_MOD, pair.there, EPOLLIN | EPOLLONESHOT);
  say(pair.here, "c");
  tell("one shot", epoll.wait(-1));
  tell("one shot, no more", epoll.wait(0));
  epoll.control(EPOLL_CTL_MOD, pair.there, EPOLLIN | EPOLLONESHOT);
  tell("one more shot", epoll.wait(-1));
  tell("one more shot, no more", epoll.wait(0));
  std::array<int, 2> ends{};
  need(pipe(ends.data()) == 0, "pipe");
  epoll.control(EPOLL_CTL_MOD, pair.there, EPOLLIN);
  epoll.control(EPOLL_CTL_ADD, ends[0], EPOLLIN);
  need(write(ends[1], "x", 1) == 1, "write");
  tell("with a pipe", epoll.wait(0));
  epoll.control(EPOLL_CTL_DEL, ends[0], 0);
  epoll.control(EPOLL_CTL_DEL, pair.there, 0);
  tell("deleted", epoll.wait(0));
  close(ends[0]);
  close(ends[1]);
}

void epoll_edges() {
  const Pair pair(SOCK_NONBLOCK);
  const Epoll epoll;
  epoll.control(EPOLL_CTL_ADD, pair.there, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  tell("edge, at first", epoll.wait(-1));
  tell("edge, at first, no more", epoll.wait(0));
  say(pair.here, "ab");
  tell("edge, bytes", epoll.wait(-1));
  tell("edge, bytes, no more", epoll.wait(0));
  char one = 0;
  tell("edge, one byte", recv(pair.there, &one, 1, 0));
  tell("edge, the rest is old", epoll.wait(0));
  say(pair.here, "c");
  tell("edge, another", epoll.wait(-1));
  tell("edge, another, no more", epoll.wait(0));
  tell("edge, all", receive_text(pair.there));
  // Full, and not full any more.
  const std::vector<char> much(1 << 16);
  std::size_t filled = 0;
  while (true) {
    const ssize_t sent = send(pair.there, much.data(), much.size(), 0);
    if (sent < 0) break;
    filled += static_cast<std::size_t>(sent);
  }
  tell("edge, full", error_or(-1));
  tell("edge, full, no event", epoll.wait(0));
  std::vector<char> into(1 << 20);
  while (filled > 0)
    filled -= static_cast<std::size_t>(recv(pair.here, into.data(), into.size(), 0));
  tell("edge, room again", epoll.wait(-1).find("out") != std::string::npos);
  shutdown(pair.here, SHUT_WR);
  std::string end;
  while (end.find("rdhup") == std::string::npos) end = epoll.wait(-1);
  tell("edge, the end", end);
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

// Much in both directions at once, by whoever is ready.
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

// --- Descriptors and processes -------------------------------------------------------------------

void copies() {
  Pair pair;
  const int copy = dup(pair.here);
  close(pair.here);
  say(copy, "by a copy");
  tell("dup", receive_text(pair.there));
  tell("not ended", receive_text(pair.there, MSG_DONTWAIT));
  pair.here = fcntl(copy, F_DUPFD_CLOEXEC, 100);
  close(copy);
  say(pair.here, "y");
  tell("F_DUPFD", receive_text(pair.there));
  const int other = open("/dev/null", O_RDONLY);
  dup2(other, pair.here);  // the last one
  tell("ended by dup2", receive_text(pair.there));
  close(other);
}

void resets() {
  Pair pair;
  const linger at_once{1, 0};
  setsockopt(pair.here, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(pair.here);
  pair.here = -1;
  tell("reset", names_of(await(pair.there, POLLIN | POLLRDHUP)));
  tell("reset says", receive_text(pair.there));
  tell("reset says once", receive_text(pair.there));
  tell("sending to nobody", error_or(send(pair.there, "x", 1, MSG_NOSIGNAL)));
}

void signals() {
  const Pair pair;
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 10'000}, {0, 10'000}};
  setitimer(ITIMER_REAL, &often, nullptr);
  tell("interrupted", receive_text(pair.there));
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  std::thread later([&] {
    poll(nullptr, 0, 50);
    say(pair.here, "late");
  });
  tell("restarted", receive_text(pair.there));
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  later.join();
}

void echo(int fd) {
  std::array<char, 64> text{};
  const ssize_t got = recv(fd, text.data(), text.size(), 0);
  if (got > 0) send(fd, text.data(), static_cast<std::size_t>(got), 0);
}

// The classic server: a process for each connection.
void forks() {
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  for (const char* word : {"first", "second"}) {
    const int here = connect_to(address);
    const int there = accept(listener, nullptr, nullptr);
    const pid_t child = fork();
    if (child == 0) {
      close(listener);
      close(here);
      echo(there);
      _exit(0);
    }
    close(there);
    say(here, word);
    tell("by a child", receive_text(here));
    tell("its end", receive_text(here));
    close(here);
    waitpid(child, nullptr, 0);
  }
  close(listener);
  const Pair pair(SOCK_NONBLOCK);
  tell("another program", std::system("true"));
  say(pair.here, "afterwards");
  await(pair.there, POLLIN);
  tell("in the parent", receive_text(pair.there));
  // A child that has nothing to do with the connections, as one that saves what a server has.
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  for (const char* word : {"as", "before"}) {
    say(pair.here, word);
    await(pair.there, POLLIN);
    say(pair.there, receive_text(pair.there).c_str());
    tell("in the parent still", receive_text(pair.here));
  }
  sockaddr_in name{};
  socklen_t bytes = sizeof name;
  getpeername(pair.there, reinterpret_cast<sockaddr*>(&name), &bytes);
  const auto port = name.sin_port;
  getsockname(pair.here, reinterpret_cast<sockaddr*>(&name), &bytes);
  tell("names as before", name.sin_family == AF_INET && name.sin_port == port);
}

// Another program writes to a connection.
void spawning() {
  Pair pair;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pair.there, STDOUT_FILENO);
  char name[] = "echo";
  char text[] = "spawned";
  std::array<char*, 3> arguments{name, text, nullptr};
  pid_t child = 0;
  tell("posix_spawn", posix_spawnp(&child, "echo", &actions, nullptr, arguments.data(), environ));
  posix_spawn_file_actions_destroy(&actions);
  waitpid(child, nullptr, 0);
  close(pair.there);
  pair.there = -1;
  tell("it says", receive_text(pair.here));
  tell("and ends", receive_text(pair.here));
}

// A child that gets a connection from its parent by a local socket.
void passing() {
  std::array<int, 2> local{};
  need(socketpair(AF_UNIX, SOCK_STREAM, 0, local.data()) == 0, "socketpair");
  const pid_t child = fork();
  char text[] = "x";
  iovec piece{text, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  if (child == 0) {
    int fd = -1;
    if (recvmsg(local[1], &message, 0) == 1) {
      std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    }
    echo(fd);
    _exit(0);
  }
  Pair pair;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &pair.there, sizeof(int));
  tell("passed", sendmsg(local[0], &message, 0));
  close(pair.there);
  pair.there = -1;
  say(pair.here, "passed on");
  tell("by who got it", receive_text(pair.here));
  tell("its end too", receive_text(pair.here));
  waitpid(child, nullptr, 0);
  close(local[0]);
  close(local[1]);
}

void files() {
  Pair pair;
  std::FILE* const file = fdopen(pair.there, "r+");
  say(pair.here, "a line\n");
  std::array<char, 64> line{};
  tell("fgets", std::fgets(line.data(), line.size(), file) ? line.data() : "nothing");
  std::fputs("an answer\n", file);
  std::fclose(file);
  pair.there = -1;
  tell("fputs", receive_text(pair.here));
  tell("fclose", receive_text(pair.here));
}

}  // namespace

int main() {
  signal(SIGPIPE, SIG_IGN);
  names();
  options();
  families();
  connecting();
  polling();
  epoll_levels();
  epoll_edges();
  pieces();
  exchange();
  copies();
  resets();
  signals();
  forks();
  files();
  passing();
  spawning();
  std::puts("all done");
}
