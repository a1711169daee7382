// What poll(2) and epoll(7) report for a visible socket.
#include "interpose/visible_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace weft::interpose {
namespace {

struct Seen {
  explicit Seen(int type = 0) : socket(type, fd) {}
  ~Seen() { close(fd); }
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;

  [[nodiscard]] short events() const {
    pollfd entry{fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    EXPECT_GE(poll(&entry, 1, 0), 0);
    return entry.revents;
  }

  // As a peer does.
  void ring() const { ASSERT_EQ(write(socket.bell(), "", 1), 1); }

  int fd = -1;  // the program's descriptor
  VisibleSocket socket;
};

TEST(VisibleSocket, IsReadableAndWritableAsItIsSet) {
  Seen seen;
  EXPECT_EQ(seen.events(), POLLOUT);
  for (int turn = 0; turn < 3; ++turn) {
    seen.socket.set_readable(true);
    seen.socket.set_readable(true);
    EXPECT_EQ(seen.events(), POLLIN | POLLOUT);
    seen.socket.set_writable(false);
    EXPECT_EQ(seen.events(), POLLIN);
    seen.socket.set_readable(false);
    EXPECT_EQ(seen.events(), 0);
    seen.socket.set_writable(true);
    EXPECT_EQ(seen.events(), POLLOUT);
  }
}

// The peer has decided to ring, and does so after the socket was set to not readable.
TEST(VisibleSocket, ALateBellCanBeDropped) {
  Seen seen;
  seen.socket.count_bells(1);
  seen.socket.set_readable(false);
  EXPECT_TRUE(seen.socket.awaits_bells());
  seen.ring();
  EXPECT_EQ(seen.events(), POLLIN | POLLOUT);
  seen.socket.drop_late_bells();
  EXPECT_EQ(seen.events(), POLLOUT);
  EXPECT_FALSE(seen.socket.awaits_bells());
}

TEST(VisibleSocket, EndsForReadingThenForBoth) {
  Seen seen;
  seen.socket.show_end();
  EXPECT_EQ(seen.events(), POLLIN | POLLOUT | POLLRDHUP);
  seen.socket.show_hang_up();
  EXPECT_EQ(seen.events(), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
  seen.socket.set_writable(false);  // no effect any more
  seen.socket.set_readable(false);
  EXPECT_EQ(seen.events(), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
  EXPECT_FALSE(seen.socket.usable());
}

TEST(VisibleSocket, AFailureIsAnError) {
  Seen seen;
  seen.socket.show_failure();
  EXPECT_TRUE(seen.events() & POLLERR);
  EXPECT_TRUE(seen.events() & POLLHUP);
}

TEST(VisibleSocket, RepeatsTheEdgeOnRequest) {
  Seen seen;
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = seen.fd}};
  ASSERT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, seen.fd, &event), 0);
  const auto edges = [&] { return epoll_wait(epoll, &event, 1, 0); };
  EXPECT_EQ(edges(), 0);
  seen.socket.repeat_readable();  // no effect: it is not readable
  EXPECT_EQ(edges(), 0);
  seen.socket.set_readable(true);
  EXPECT_EQ(edges(), 1);
  EXPECT_EQ(edges(), 0);
  seen.socket.repeat_readable();
  EXPECT_EQ(edges(), 1);
  EXPECT_EQ(edges(), 0);
  seen.socket.set_readable(false);
  EXPECT_EQ(seen.events() & POLLIN, 0) << "a repeated byte is left in the socket";
  close(epoll);
}

TEST(VisibleSocket, ABellMakesItReadableUntilItIsTaken) {
  Seen seen;
  seen.ring();
  EXPECT_EQ(seen.events(), POLLIN | POLLOUT);
  seen.socket.count_bells(1);
  seen.socket.set_readable(true);
  EXPECT_EQ(seen.events(), POLLIN | POLLOUT);
  seen.socket.set_readable(false);
  EXPECT_EQ(seen.events(), POLLOUT);
  seen.socket.set_readable(true);  // by a byte of its own again
  EXPECT_EQ(seen.events(), POLLIN | POLLOUT);
  seen.ring();
  seen.socket.count_bells(1);
  seen.socket.set_readable(false);
  EXPECT_EQ(seen.events(), POLLOUT);
}

TEST(VisibleSocket, ABellThatWasNotNoticedKeepsItReadable) {
  Seen seen;
  seen.ring();
  seen.socket.count_bells(1);
  seen.ring();
  seen.socket.set_readable(false);
  EXPECT_EQ(seen.events(), POLLIN | POLLOUT);
  seen.socket.count_bells(1);
  seen.socket.set_readable(false);
  EXPECT_EQ(seen.events(), POLLOUT);
}

TEST(VisibleSocket, ALateBellIsDropped) {
  Seen seen;
  seen.socket.count_bells(1);
  seen.socket.set_readable(false);  // waits for it, and gives up
  seen.ring();
  EXPECT_EQ(seen.events(), POLLIN | POLLOUT);
  seen.socket.drop_late_bells();
  EXPECT_EQ(seen.events(), POLLOUT);
}

// A byte of the bell must not get among those of the program.
TEST(VisibleSocket, ARelayEndsIfItsBellIsMissing) {
  Seen seen(SOCK_NONBLOCK);
  seen.socket.count_bells(1);
  const Descriptor other = seen.socket.start_relay();
  EXPECT_TRUE(seen.events() & POLLHUP);
}

// As a peer does that has a copy of the bell.
TEST(VisibleSocket, AFailureIsAHangUpWhileAPeerHasTheBell) {
  Seen seen;
  const Descriptor copy = copy_high(seen.socket.bell());
  seen.socket.show_failure();
  EXPECT_TRUE(seen.events() & POLLHUP);
}

TEST(VisibleSocket, IsMadeOfAPairThatExists) {
  HiddenPair pair;
  const int lowest = dup(0);
  ASSERT_EQ(close(lowest), 0);
  const int fd = pair.open_visible(SOCK_NONBLOCK | SOCK_CLOEXEC);
  VisibleSocket socket(std::move(pair));
  EXPECT_EQ(fd, lowest);
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  socket.set_readable(true);
  char byte;
  EXPECT_EQ(recv(fd, &byte, 1, 0), 1);
  close(fd);
}

TEST(VisibleSocket, WaitsUntilTheTimeoutsOfTheProgram) {
  Seen seen;
  EXPECT_EQ(seen.socket.await_writable(-1), 0);
  seen.socket.set_writable(false);
  EXPECT_EQ(seen.socket.await_writable(1), EAGAIN);
  const timeval soon{0, 1000};
  seen.socket.set_receive_timeout(&soon, sizeof soon);
  EXPECT_EQ(seen.socket.await_readable(), EAGAIN);
  seen.socket.set_readable(true);
  EXPECT_EQ(seen.socket.await_readable(), 0);
}

TEST(VisibleSocket, HasTheFlagsOfTheProgramsDescriptor) {
  const Seen plain;
  EXPECT_EQ(fcntl(plain.fd, F_GETFD), 0);
  EXPECT_EQ(fcntl(plain.fd, F_GETFL) & O_NONBLOCK, 0);
  const Seen flagged(SOCK_NONBLOCK | SOCK_CLOEXEC);
  EXPECT_EQ(fcntl(flagged.fd, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(fcntl(flagged.fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
}

TEST(VisibleSocket, ARelayCarriesOnlyTheProgramsBytes) {
  Seen seen(SOCK_NONBLOCK);
  seen.socket.set_readable(true);
  seen.socket.set_writable(false);
  const Descriptor other = seen.socket.start_relay();
  EXPECT_EQ(seen.events(), POLLOUT);
  ASSERT_EQ(write(seen.fd, "out", 3), 3);
  ASSERT_EQ(write(other.get(), "in", 2), 2);
  std::array<char, 10> got{};
  EXPECT_EQ(read(other.get(), got.data(), got.size()), 3);
  EXPECT_EQ(std::string(got.data(), 3), "out");
  EXPECT_EQ(read(seen.fd, got.data(), got.size()), 2);
  EXPECT_EQ(std::string(got.data(), 2), "in");
  EXPECT_EQ(fcntl(other.get(), F_GETFL) & O_NONBLOCK, 0);
}

}  // namespace
}  // namespace weft::interpose
