// What poll(2) and epoll(7) report for the file of a listening socket.
#include "interpose/listener_file.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/descriptor.h"
#include "interpose/visible_socket.h"

namespace weft::interpose {
namespace {

using weft::Descriptor;

Descriptor listening() {
  Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  EXPECT_EQ(listen(made.get(), 8), 0);
  return made;
}

Descriptor client_of(int listener) {
  sockaddr_in name{};
  socklen_t bytes = sizeof name;
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&name), &bytes), 0);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(made.get(), reinterpret_cast<sockaddr*>(&name), bytes), 0);
  return made;
}

// A listening socket, as the program has it after listen(2).
struct Listening {
  Listening() : visible(SOCK_CLOEXEC | SOCK_NONBLOCK, fd), file(visible.copy(), kernel.get()) {
    file.replace(fd);
  }
  ~Listening() { close(fd); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

  [[nodiscard]] short events() const {
    pollfd entry{fd, POLLIN | POLLOUT, 0};
    EXPECT_GE(poll(&entry, 1, 0), 0);
    return entry.revents;
  }

  Descriptor kernel = listening();
  int fd = -1;  // the program's descriptor
  VisibleSocket visible;
  ListenerFile file;
};

TEST(ListenerFile, KeepsTheFlagsOfTheDescriptor) {
  const Listening listening;
  EXPECT_EQ(fcntl(listening.fd, F_GETFD), FD_CLOEXEC);
  EXPECT_TRUE(fcntl(listening.fd, F_GETFL) & O_NONBLOCK);
}

TEST(ListenerFile, IsReadableAsTheVisibleSocketIs) {
  Listening listening;
  EXPECT_EQ(listening.events(), 0);
  listening.visible.set_readable(true);
  EXPECT_EQ(listening.events(), POLLIN);
  listening.visible.set_readable(false);
  EXPECT_EQ(listening.events(), 0);
}

TEST(ListenerFile, ShowsClientsOfTheKernelOnlyIfAskedTo) {
  Listening listening;
  const Descriptor client = client_of(listening.kernel.get());
  EXPECT_EQ(listening.events(), 0);
  listening.file.show_kernel_queue(true);
  EXPECT_EQ(listening.events(), POLLIN);
  listening.file.show_kernel_queue(false);
  EXPECT_EQ(listening.events(), 0);
  listening.file.show_kernel_queue(true);
  EXPECT_EQ(listening.events(), POLLIN);
  const Descriptor accepted(accept(listening.kernel.get(), nullptr, nullptr));
  EXPECT_TRUE(accepted.valid());
  EXPECT_EQ(listening.events(), 0);
}

// A program that waits for edges has to learn of each client.
TEST(ListenerFile, EachClientIsAnEdge) {
  Listening listening;
  listening.file.show_kernel_queue(true);
  const Descriptor set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event wanted{EPOLLIN | EPOLLET, {}};
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, listening.fd, &wanted), 0);
  epoll_event found{};
  EXPECT_EQ(epoll_wait(set.get(), &found, 1, 0), 0);
  const Descriptor first = client_of(listening.kernel.get());
  EXPECT_EQ(epoll_wait(set.get(), &found, 1, -1), 1);
  EXPECT_EQ(epoll_wait(set.get(), &found, 1, 0), 0);
  const Descriptor second = client_of(listening.kernel.get());
  EXPECT_EQ(epoll_wait(set.get(), &found, 1, -1), 1);
}

// Once it is shown, what waits already is an edge as well.
TEST(ListenerFile, ShowingTheKernelsQueueIsAnEdge) {
  Listening listening;
  const Descriptor set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event wanted{EPOLLIN | EPOLLET, {}};
  ASSERT_EQ(epoll_ctl(set.get(), EPOLL_CTL_ADD, listening.fd, &wanted), 0);
  const Descriptor client = client_of(listening.kernel.get());
  epoll_event found{};
  EXPECT_EQ(epoll_wait(set.get(), &found, 1, 0), 0);
  listening.file.show_kernel_queue(true);
  EXPECT_EQ(epoll_wait(set.get(), &found, 1, -1), 1);
}

}  // namespace
}  // namespace weft::interpose
