// Support for tests with two processes.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "message/sides.h"
#include "support/host.h"

namespace weft::message::testing {

// A child process that runs `work`, with a pipe from it. Killed by the destructor.
class Child {
 public:
  explicit Child(const std::function<void(int out)>& work) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      try {
        work(ends[1]);
        _exit(0);
      } catch (const std::exception& error) {
        fprintf(stderr, "child: %s\n", error.what());
        _exit(1);
      }
    }
    close(ends[1]);
    in_ = ends[0];
  }
  ~Child() {
    kill(pid_, SIGKILL);
    (void)wait();
    close(in_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  template <typename T>
  T read() const {
    T value{};
    EXPECT_EQ(::read(in_, &value, sizeof value), static_cast<ssize_t>(sizeof value));
    return value;
  }
  void signal(int number) const { kill(pid_, number); }
  int wait() {
    int status = status_;
    if (!std::exchange(waited_, true)) waitpid(pid_, &status, 0);
    return status_ = status;
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int status_ = 0;
  bool waited_ = false;
};

// A server that sends every message back until it is killed.
inline void echo(int out) {
  EventLoop loop;
  const auto listener = loop.listen({test::host(), 0}, [&](Request request) {
    Handlers handlers;
    handlers.message = [](Connection& from, Received& got) {
      from.send(got.bytes(), {.type = got.type(), .tag = got.tag()});
    };
    request.accept(std::move(handlers));
  });
  const std::uint16_t port = listener.port();
  if (write(out, &port, sizeof port) < 0) return;
  loop.run();
}

// Each test runs in a fork of its own, because a process with a device has threads and must not
// fork.
template <typename Test>
void in_two_processes(const std::function<void(int)>& theirs, const Test& ours) {
  const Child tester([&](int) {
    Child child(theirs);
    ours(child);
    if (::testing::Test::HasFailure()) throw std::runtime_error("the test has failed");
  });
  EXPECT_EQ(const_cast<Child&>(tester).wait(), 0);
}

}  // namespace weft::message::testing
