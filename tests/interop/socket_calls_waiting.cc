// Connecting, and waiting with poll, select and epoll.
#include <pthread.h>
#include <sys/un.h>

#include <chrono>

#include "interop/socket_calls.h"

namespace {

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
  const int epoll = epoll_create1(0);  // created before it connects
  epoll_event event{.events = EPOLLOUT | EPOLLET, .data = {.fd = refused}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, refused, &event);
  while (epoll_wait(epoll, &event, 1, 0) > 0) continue;
  need(connect(refused, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0, "refusal");
  if (errno == EINPROGRESS) {
    // A stream's socket may report EPOLLOUT in a second event: the kernel frees what makes a local
    // socket not writable a moment after it has reported that the other end is closed.
    constexpr unsigned all = EPOLLERR | EPOLLHUP | EPOLLOUT;
    unsigned reported = 0;
    while (reported != all) {
      need(epoll_wait(epoll, &event, 1, -1) == 1, "epoll_wait");
      reported |= event.events & all;
    }
    tell("refused later", names_of(reported));
    getsockopt(refused, SOL_SOCKET, SO_ERROR, &error, &bytes);
    tell("refused with", strerrorname_np(error));
  }
  close(refused);
  close(epoll);
}

// What was set before the socket connects holds afterwards, whatever file it is by then.
void before_connecting() {
  sockaddr_in address{};
  const int listener = listen_anywhere(address);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  tell("not connected", names_of(look(fd, POLLIN | POLLOUT)));
  const timeval timeout{.tv_sec = 0, .tv_usec = 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  const int copy = dup(fd);
  tell("connect a copy",
       error_or(connect(copy, reinterpret_cast<sockaddr*>(&address), sizeof address)));
  const int there = accept(listener, nullptr, nullptr);
  tell("close-on-exec", fcntl(fd, F_GETFD));
  tell("close-on-exec of the copy", fcntl(copy, F_GETFD));
  tell("receives with the timeout", receive_text(fd));
  say(copy, "abc");
  tell("received from the copy", receive_text(there));
  const int other = socket(AF_INET, SOCK_STREAM, 0);
  fcntl(other, F_SETFL, O_NONBLOCK);
  tell("connect without waiting",
       connect(other, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ||
           errno == EINPROGRESS);
  tell("connected without waiting", names_of(await(other, POLLOUT)));
  tell("still non-blocking", receive_text(other));
  for (const int each : {listener, fd, copy, there, other}) close(each);
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

// In 64 bits of nanoseconds this timeout would overflow to a third of a second.
void polling_for_ages() {
  const Pair pair;
  constexpr timespec ages{static_cast<time_t>(18'446'744'074LL), 0};
  std::thread later([&] {
    poll(nullptr, 0, 600);
    say(pair.here, "late");
  });
  pollfd entry{pair.there, POLLIN, 0};
  tell("after ages", ppoll(&entry, 1, &ages, nullptr));
  later.join();
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

// Sends on request in a process of its own, so that sending causes no progress in this process. The
// process begins before there is a listener, which otherwise would be shared and the kernel's.
class Sender {
 public:
  Sender() {
    need(pipe(orders_.data()) == 0, "pipe");
    child_ = fork();
    sockaddr_in address{};
    if (child_ == 0) {
      close(orders_[1]);
      need(read(orders_[0], &address, sizeof address) == sizeof address, "an address");
      obey(connect_to(address));
      _exit(0);
    }
    close(orders_[0]);
    const int listener = listen_anywhere(address);
    need(write(orders_[1], &address, sizeof address) == sizeof address, "an address");
    there = accept(listener, nullptr, nullptr);
    close(listener);
  }
  ~Sender() {
    close(orders_[1]);
    waitpid(child_, nullptr, 0);
    close(there);
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  void order() const { need(write(orders_[1], "x", 1) == 1, "an order"); }

  int there = -1;

 private:
  void obey(int here) const {
    char order = 0;
    while (read(orders_[0], &order, 1) == 1) say(here, "x");
  }

  std::array<int, 2> orders_{};
  pid_t child_ = -1;
};

// A program that finds a ready descriptor on each call never blocks, and other events must still
// arrive.
void epoll_beside_what_is_always_ready() {
  const Sender sender;
  const Epoll epoll;
  epoll.control(EPOLL_CTL_ADD, sender.there, EPOLLIN);
  for (int i = 0; i < 20; ++i) {
    sender.order();
    need(epoll.wait(-1) == names_of(EPOLLIN), "what another process has sent");
    tell("alone", receive_text(sender.there));
  }
  std::array<int, 2> ends{};
  need(pipe(ends.data()) == 0, "pipe");
  epoll.control(EPOLL_CTL_ADD, ends[0], EPOLLIN);
  need(write(ends[1], "x", 1) == 1, "write");
  sender.order();
  const std::string both = names_of(EPOLLIN) + names_of(EPOLLIN);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string found;
  while (found != both && std::chrono::steady_clock::now() < end) found = epoll.wait(-1);
  tell("beside a pipe that is always ready", found);
  for (const int fd : ends) close(fd);
}

// A stream that the program uses, in an epoll set: libweft-sockets looks at it without the kernel.
struct InUse {
  InUse() {
    epoll.control(EPOLL_CTL_ADD, sender.there, EPOLLIN);
    for (int i = 0; i < 20; ++i) arrive();
  }
  void arrive() const {
    sender.order();
    need(epoll.wait(-1) == names_of(EPOLLIN), "what another process has sent");
    need(receive_text(sender.there) == "x", "recv");
  }
  // The order is not obeyed before this process waits, most of the time.
  std::thread order_later() const {
    return std::thread([this] {
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      sender.order();
    });
  }
  Sender sender;
  Epoll epoll;
};

std::string control_error(const Epoll& epoll, int operation, int fd, unsigned events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return error_or(epoll_ctl(epoll.fd, operation, fd, &event));
}

void epoll_interest_changes() {
  const InUse use;
  const int fd = use.sender.there;
  tell("in use, added again", control_error(use.epoll, EPOLL_CTL_ADD, fd, EPOLLIN));
  use.epoll.control(EPOLL_CTL_MOD, fd, EPOLLOUT);
  tell("in use, to send", use.epoll.wait(-1));
  tell("in use, to send, at once", use.epoll.wait(0));
  use.sender.order();
  await(fd, POLLIN);
  tell("in use, only to send", use.epoll.wait(0));
  use.epoll.control(EPOLL_CTL_MOD, fd, 0);
  tell("in use, nothing wanted", use.epoll.wait(0));
  use.epoll.control(EPOLL_CTL_DEL, fd, 0);
  tell("in use, deleted", use.epoll.wait(0));
  tell("in use, deleted again", control_error(use.epoll, EPOLL_CTL_DEL, fd, 0));
  tell("in use, changed without it", control_error(use.epoll, EPOLL_CTL_MOD, fd, EPOLLIN));
  use.epoll.control(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT);
  tell("in use, both", use.epoll.wait(-1));
  tell("in use, received", receive_text(fd));
  tell("in use, the rest", use.epoll.wait(0));
  use.epoll.control(EPOLL_CTL_MOD, fd, EPOLLIN);
  for (int i = 0; i < 20; ++i) use.arrive();
  tell("in use, unknown operation", control_error(use.epoll, 77, fd, EPOLLIN));
  tell("in use, without an event", error_or(epoll_ctl(use.epoll.fd, EPOLL_CTL_MOD, fd, nullptr)));
}

// Descriptors with the same data are reported each for itself.
void epoll_same_data() {
  const InUse use;
  std::array<int, 2> ends{};
  need(pipe(ends.data()) == 0, "pipe");
  epoll_event event{.events = EPOLLIN, .data = {.fd = use.sender.there}};
  need(epoll_ctl(use.epoll.fd, EPOLL_CTL_ADD, ends[0], &event) == 0, "epoll_ctl");
  need(write(ends[1], "x", 1) == 1, "write");
  use.sender.order();
  std::string found;
  while (found != "in in ") found = use.epoll.wait(-1);
  tell("the same data twice", found);
  for (const int fd : ends) close(fd);
}

// Whatever waits for a socket that the set looks at is woken by its bytes.
void waiting_in_other_ways() {
  const InUse use;
  const int fd = use.sender.there;
  std::thread later = use.order_later();
  tell("in use, polled", names_of(await(fd, POLLIN)));
  later.join();
  tell("in use, polled and received", receive_text(fd));
  use.epoll.control(EPOLL_CTL_MOD, fd, EPOLLIN);
  use.arrive();
  later = use.order_later();
  fd_set wanted;
  FD_ZERO(&wanted);
  FD_SET(fd, &wanted);
  tell("in use, selected", select(fd + 1, &wanted, nullptr, nullptr, nullptr));
  later.join();
  tell("in use, selected and received", receive_text(fd));
  use.epoll.control(EPOLL_CTL_MOD, fd, EPOLLIN);
  use.arrive();
  later = use.order_later();
  tell("in use, received by a call that blocks", receive_text(fd));
  later.join();
}

void sets_in_other_sets() {
  const InUse use;
  const Epoll outer;
  outer.control(EPOLL_CTL_ADD, use.epoll.fd, EPOLLIN);
  for (int i = 0; i < 3; ++i) {
    std::thread later = use.order_later();
    tell("a set in a set", outer.wait(-1));
    later.join();
    tell("the inner set", use.epoll.wait(0));
    tell("received", receive_text(use.sender.there));
    tell("a set in a set, idle", outer.wait(0));
  }
  const InUse other;
  std::thread later = other.order_later();
  tell("a set that is polled", names_of(await(other.epoll.fd, POLLIN)));
  later.join();
  const InUse third;
  const int copy = dup(third.epoll.fd);
  later = third.order_later();
  epoll_event event{};
  tell("a copy of a set", epoll_wait(copy, &event, 1, -1));
  later.join();
  close(copy);
}

// A socket in two sets, a copy of a socket, and a set that is closed.
void sockets_in_several_sets() {
  const InUse use;
  const Epoll second;
  second.control(EPOLL_CTL_ADD, use.sender.there, EPOLLIN);
  std::thread later = use.order_later();
  tell("in the second set", second.wait(-1));
  later.join();
  tell("in the first set", use.epoll.wait(0));
  tell("received", receive_text(use.sender.there));
  const InUse copied;
  const int copy = dup(copied.sender.there);
  later = copied.order_later();
  tell("with a copy", copied.epoll.wait(-1));
  later.join();
  tell("received by the copy", receive_text(copy));
  close(copy);
  copied.arrive();
  const InUse closed;
  const int set = dup(closed.epoll.fd);
  close(set);
  const Epoll fresh;
  closed.epoll.control(EPOLL_CTL_DEL, closed.sender.there, 0);
  fresh.control(EPOLL_CTL_ADD, closed.sender.there, EPOLLIN);
  later = closed.order_later();
  tell("in a fresh set", fresh.wait(-1));
  later.join();
}

// One thread waits, and another one changes what it waits for.
void interest_of_a_thread_that_waits() {
  const InUse use;
  const int fd = use.sender.there;
  for (int i = 0; i < 20; ++i) {
    use.epoll.control(EPOLL_CTL_MOD, fd, 0);
    std::thread changes([&] {
      for (int turn = 0; turn < 100; ++turn) std::this_thread::yield();
      use.epoll.control(EPOLL_CTL_MOD, fd, i % 2 == 0 ? EPOLLOUT : EPOLLIN);
    });
    if (i % 2 == 1) use.sender.order();
    const std::string found = use.epoll.wait(-1);
    changes.join();
    need(found == names_of(i % 2 == 0 ? EPOLLOUT : EPOLLIN), "the changed interest");
    if (i % 2 == 1) need(receive_text(fd) == "x", "recv");
  }
  tell("changed while it waits", 1);
}

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
  // Becomes full, and then writable again.
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

// A thread that blocks in a call on a socket of the kernel is cancelled there.
template <typename Block>
void cancelling(const char* what, Block block) {
  pthread_t thread{};
  const auto start = [](void* argument) -> void* {
    (*static_cast<Block*>(argument))();
    return nullptr;
  };
  need(pthread_create(&thread, nullptr, start, &block) == 0, "pthread_create");
  pthread_cancel(thread);
  void* result = nullptr;
  pthread_join(thread, &result);
  tell(what, result == PTHREAD_CANCELED);
}

void cancelling_in_calls() {
  std::array<int, 2> local{};
  need(socketpair(AF_UNIX, SOCK_STREAM, 0, local.data()) == 0, "socketpair");
  cancelling("sendmsg cancelled", [&] {
    std::array<char, 65536> bytes{};
    iovec piece{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    while (sendmsg(local[0], &message, 0) > 0) {
    }
  });
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
  need(bind(listener, reinterpret_cast<sockaddr*>(&name), sizeof name.sun_family) == 0, "bind");
  need(listen(listener, 0) == 0, "listen");
  socklen_t bytes = sizeof name;
  getsockname(listener, reinterpret_cast<sockaddr*>(&name), &bytes);
  cancelling("connect cancelled", [&] {
    while (connect(socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<sockaddr*>(&name), bytes) ==
           0) {
    }
  });
  std::array<char, 8> text{};
  cancelling("read cancelled", [&] { (void)read(local[0], text.data(), text.size()); });
  const Pair pair;
  cancelling("recv cancelled", [&] { (void)recv(pair.here, text.data(), text.size(), 0); });
  sockaddr_in address{};
  const int streams = listen_anywhere(address);
  cancelling("accept cancelled", [&] { (void)accept(streams, nullptr, nullptr); });
  for (const int fd : {local[0], local[1], listener, streams}) close(fd);
}

// A new connection has room for the first bytes, at either end.
void speaking_first() {
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    const Pair pair(SOCK_NONBLOCK);
    refused += send(pair.there, "x", 1, 0) != 1;
  }
  tell("refused first sends", refused);
}

void shutting_the_receiving_side() {
  const Pair pair;
  say(pair.here, "before");
  await(pair.there, POLLIN);
  shutdown(pair.there, SHUT_RD);
  tell("received before it was shut", receive_text(pair.there));
  tell("nothing more", receive_text(pair.there));
}

void looking_at_pieces() {
  const Pair pair;
  std::array<char, 8> text{};
  const iovec piece{text.data(), text.size()};
  tell("preadv2 of nothing", error_or(preadv2(pair.there, &piece, 1, -1, RWF_NOWAIT)));
  say(pair.here, "abc");
  await(pair.there, POLLIN);
  tell("preadv2", preadv2(pair.there, &piece, 1, -1, RWF_NOWAIT));
}

}  // namespace

void wait_for_sockets() {
  connecting();
  before_connecting();
  polling();
  polling_for_ages();
  epoll_beside_what_is_always_ready();
  epoll_interest_changes();
  epoll_same_data();
  waiting_in_other_ways();
  sets_in_other_sets();
  sockets_in_several_sets();
  interest_of_a_thread_that_waits();
  epoll_levels();
  epoll_edges();
  cancelling_in_calls();
  speaking_first();
  shutting_the_receiving_side();
  looking_at_pieces();
}
