// StreamSet, by the calls that programs make: this program contains all of libweft-sockets.so, so
// that its sockets are streams, and a sanitizer sees all threads.
#include "interpose/stream_set.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

namespace weft::interpose {
namespace {

// Before the first socket, for all tests.
class StreamsOnly : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("WEFT_SOCKETS", "always", 1);
    setenv("WEFT_QUIET", "1", 1);
  }
};
[[maybe_unused]] const auto* const streams_only =
    ::testing::AddGlobalTestEnvironment(new StreamsOnly);

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) { EXPECT_GE(fd, 0) << std::strerror(errno); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_ = -1;
};

class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address_;
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(bind(fd_.get(), address, bytes), 0);
    EXPECT_EQ(listen(fd_.get(), 64), 0);
    EXPECT_EQ(getsockname(fd_.get(), address, &bytes), 0);
  }
  [[nodiscard]] Descriptor connect() const {
    Descriptor made(socket(AF_INET, SOCK_STREAM, 0));
    const auto* const address = reinterpret_cast<const sockaddr*>(&address_);
    EXPECT_EQ(::connect(made.get(), address, sizeof address_), 0) << std::strerror(errno);
    return made;
  }
  [[nodiscard]] Descriptor accept() const {
    return Descriptor(accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK));
  }

 private:
  Descriptor fd_;
  sockaddr_in address_{};
};

struct Ends {
  Descriptor client;  // blocks
  Descriptor server;  // does not block
};

// Each thread has a listener of its own, so that both ends are of one connection.
Ends connect_by(const Listener& listener) {
  Ends ends;
  ends.client = listener.connect();
  ends.server = listener.accept();
  return ends;
}

int change(const Descriptor& set, int operation, int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return epoll_ctl(set.get(), operation, fd, &event);
}

// Sends a byte, and receives it from a thread that answers.
[[nodiscard]] bool is_answered(const Descriptor& client, char byte) {
  char answer = 0;
  return send(client.get(), &byte, 1, 0) == 1 && recv(client.get(), &answer, 1, 0) == 1 &&
         answer == byte;
}

// Threads that wait in one epoll set and send back what they receive, until this is destroyed. An
// event may be late: another thread has received the bytes, or the socket is closed and its number
// belongs to another one. So a thread looks whether the descriptor is still to be answered.
class Answering {
 public:
  explicit Answering(int threads) {
    EXPECT_EQ(change(set_, EPOLL_CTL_ADD, stop_.get(), EPOLLIN), 0);
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~Answering() {
    const std::uint64_t one = 1;
    EXPECT_EQ(write(stop_.get(), &one, sizeof one), ssize_t{sizeof one});
    for (auto& thread : threads_) thread.join();
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;
  [[nodiscard]] const Descriptor& set() const { return set_; }

  void add(const Descriptor& server) {
    {
      const std::lock_guard lock(mutex_);
      answered_.insert(server.get());
    }
    EXPECT_EQ(change(set_, EPOLL_CTL_ADD, server.get(), EPOLLIN), 0);
  }
  void remove(const Descriptor& server) {
    EXPECT_EQ(change(set_, EPOLL_CTL_DEL, server.get(), 0), 0);
    const std::lock_guard lock(mutex_);
    answered_.erase(server.get());
  }
  void close(Descriptor& server) {
    const std::lock_guard lock(mutex_);
    answered_.erase(server.get());
    server.close();
  }

 private:
  void run() {
    std::array<epoll_event, 8> events;
    while (true) {
      const int found = epoll_wait(set_.get(), events.data(), events.size(), -1);
      ASSERT_GE(found, 0) << std::strerror(errno);
      for (int i = 0; i < found; ++i) {
        if (events[i].data.fd == stop_.get()) return;
        answer(events[i].data.fd);
      }
    }
  }
  void answer(int fd) {
    const std::shared_lock lock(mutex_);
    if (!answered_.contains(fd)) return;
    std::array<char, 16> bytes;
    const ssize_t received = recv(fd, bytes.data(), bytes.size(), 0);
    if (received > 0) (void)send(fd, bytes.data(), received, MSG_NOSIGNAL);
  }

  Descriptor set_{epoll_create1(EPOLL_CLOEXEC)};
  Descriptor stop_{eventfd(0, EFD_CLOEXEC)};
  std::shared_mutex mutex_;  // shared while a thread uses a descriptor of the next one
  std::set<int> answered_;
  std::vector<std::thread> threads_;
};

TEST(StreamSet, SeveralThreadsWaitForTheSameStreams) {
  Answering answering(3);
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      const Listener listener;
      Ends ends = connect_by(listener);
      answering.add(ends.server);
      for (int turn = 0; turn < 200; ++turn) {
        ASSERT_TRUE(is_answered(ends.client, static_cast<char>(turn)));
      }
      EXPECT_NE(StreamSet::of(answering.set().get()), nullptr);
      answering.close(ends.server);
    });
  }
  for (auto& client : clients) client.join();
}

TEST(StreamSet, StreamsAreAddedAndClosedWhileThreadsWait) {
  Answering answering(2);
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&, i] {
      const Listener listener;
      for (int turn = 0; turn < 20; ++turn) {
        Ends ends = connect_by(listener);
        answering.add(ends.server);
        for (char byte = 0; byte < 3; ++byte) ASSERT_TRUE(is_answered(ends.client, byte));
        switch ((turn + i) % 4) {
          case 0:
            answering.remove(ends.server);
            break;
          case 1:
            ends.client.close();
            break;
          case 2:  // the kernel has the events of a socket that is shut down
            EXPECT_EQ(shutdown(ends.client.get(), SHUT_WR), 0);
            break;
          default:
            break;
        }
        answering.close(ends.server);
      }
    });
  }
  for (auto& client : clients) client.join();
}

TEST(StreamSet, InterestIsChangedWhileThreadsWait) {
  Answering answering(2);
  const Listener listener;
  Ends ends = connect_by(listener);
  const int server = ends.server.get();
  answering.add(ends.server);
  for (int turn = 0; turn < 100; ++turn) {
    ASSERT_EQ(change(answering.set(), EPOLL_CTL_MOD, server, 0), 0);
    const char byte = static_cast<char>(turn);
    ASSERT_EQ(send(ends.client.get(), &byte, 1, 0), 1);
    ASSERT_EQ(change(answering.set(), EPOLL_CTL_MOD, server, EPOLLIN | EPOLLOUT), 0);
    char answer = 0;
    ASSERT_EQ(recv(ends.client.get(), &answer, 1, 0), 1);
    EXPECT_EQ(answer, byte);
    if (turn % 3 != 0) continue;
    answering.remove(ends.server);
    answering.add(ends.server);
  }
  answering.close(ends.server);
}

// A stream goes from one set to another one while threads wait in both.
TEST(StreamSet, StreamsMoveBetweenSets) {
  Answering first(2);
  Answering second(2);
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] {
      const Listener listener;
      const Ends ends = connect_by(listener);
      for (int turn = 0; turn < 50; ++turn) {
        Answering& answering = turn % 2 == 0 ? first : second;
        answering.add(ends.server);
        ASSERT_TRUE(is_answered(ends.client, static_cast<char>(turn)));
        answering.remove(ends.server);
      }
    });
  }
  for (auto& client : clients) client.join();
}

// What only the kernel can do takes streams out of their set while threads wait in it: another call
// that waits, for a stream or for the whole set, and a copy of a descriptor.
TEST(StreamSet, StreamsLeaveForTheKernelWhileThreadsWait) {
  Answering answering(2);
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&, i] {
      const Listener listener;
      for (int turn = 0; turn < 10; ++turn) {
        const Ends ends = connect_by(listener);
        answering.add(ends.server);
        ASSERT_TRUE(is_answered(ends.client, 'a'));
        pollfd entry{(i == 0 ? answering.set() : ends.server).get(), POLLIN, 0};
        Descriptor copy;
        if (i < 2) {
          EXPECT_GE(poll(&entry, 1, 0), 0);
        } else {
          copy = Descriptor(dup(ends.server.get()));
        }
        ASSERT_TRUE(is_answered(ends.client, 'b'));
        answering.remove(ends.server);
      }
    });
  }
  for (auto& client : clients) client.join();
}

}  // namespace
}  // namespace weft::interpose
