// Scenarios that ask for two processes. The child is forked before this process has a device.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "message/sides.h"

namespace weft::message::testing {
namespace {

// Another process that runs `work`, with a pipe from it; killed at the end.
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

// A server that sends everything back, until it is killed.
void echo(int out) {
  EventLoop loop;
  const auto listener = loop.listen({"127.0.0.1", 0}, [&](Request request) {
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

// A fork of its own for each test: what has a device has threads, and must not fork.
template <typename Test>
void in_two_processes(const std::function<void(int)>& theirs, const Test& ours) {
  const Child tester([&](int) {
    Child child(theirs);
    ours(child);
    if (::testing::Test::HasFailure()) throw std::runtime_error("the test has failed");
  });
  EXPECT_EQ(const_cast<Child&>(tester).wait(), 0);
}

TEST(Processes, MessagesOfAllSizesComeBack) {
  in_two_processes(echo, [](Child& server) {
    EventLoop loop;
    Log log;
    loop.connect({"127.0.0.1", server.read<std::uint16_t>()}, log.handlers());
    until(loop, [&] { return log.established == 1; });
    std::vector<std::string> sent;
    for (const std::size_t bytes : {0, 1, 4096, 8192, 8193, 1'000'000, 33'554'433}) {
      const auto data = pattern(bytes);
      EXPECT_TRUE(log.connection.send(data));
      sent.push_back(text_of(data));
    }
    until(loop, [&] { return log.texts.size() == sent.size(); });
    EXPECT_TRUE(log.texts == sent);
    log.connection.disconnect_after_sending();
    until(loop, [&] { return log.endings.size() == 1; });
    EXPECT_EQ(log.endings[0].by, Ending::By::us);
  });
}

TEST(Processes, AKilledPeerIsNoticedAndEverythingOpenFails) {
  in_two_processes(echo, [](Child& server) {
    EventLoop loop;
    Log log;
    loop.connect({"127.0.0.1", server.read<std::uint16_t>()}, log.handlers());
    until(loop, [&] { return log.established == 1; });
    server.signal(SIGSTOP);
    std::size_t taken = 0;
    while (log.connection.send(pattern(20'000), {.confirm = true})) ++taken;
    server.signal(SIGKILL);
    until(loop, [&] { return log.endings.size() == 1; });
    EXPECT_EQ(log.failed.size(), taken);
    EXPECT_NE(log.endings[0].by, Ending::By::us);
    EXPECT_NE(log.endings[0].by, Ending::By::peer);
  });
}

// The peer's machine would not answer any more: nothing but the silence shows it.
TEST(Processes, KeepaliveFindsAVanishedPeer) {
  in_two_processes(echo, [](Child& server) {
    EventLoop loop;
    Log log;
    Options options;
    options.keepalive = 100ms;
    loop.connect({"127.0.0.1", server.read<std::uint16_t>()}, log.handlers(), options);
    until(loop, [&] { return log.established == 1; });
    // An idle peer that is alive stays.
    const Deadline longer = 500ms;
    while (!longer.passed()) loop.step(longer);
    EXPECT_TRUE(log.endings.empty());
    server.signal(SIGSTOP);
    until(loop, [&] { return log.endings.size() == 1; });
    EXPECT_EQ(log.error_numbers, std::vector<int>{ETIMEDOUT});
    EXPECT_EQ(log.endings[0].by, Ending::By::failure);
    EXPECT_EQ(log.endings[0].error_number, ETIMEDOUT);
  });
}

}  // namespace
}  // namespace weft::message::testing
