// Scenarios that need two processes. The child is forked before this process has a device.
#include <sys/resource.h>

#include <algorithm>
#include <list>
#include <thread>
#include <vector>

#include "message/processes.h"
#include "support/host.h"
#include "support/needs.h"

namespace weft::message::testing {
namespace {

TEST(Processes, MessagesOfAllSizesComeBack) {
  in_two_processes(echo, [](Child& server) {
    EventLoop loop;
    Log log;
    loop.connect({test::host(), server.read<std::uint16_t>()}, log.handlers());
    until(loop, [&] { return log.established == 1; });
    std::vector<std::string> sent;
    const std::size_t long_one = test::turns(33'554'433, 2'000'001);
    for (const std::size_t bytes :
         std::vector<std::size_t>{0, 1, 4096, 8192, 8193, 1'000'000, long_one}) {
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
    loop.connect({test::host(), server.read<std::uint16_t>()}, log.handlers());
    until(loop, [&] { return log.established == 1; });
    server.signal(SIGSTOP);
    std::size_t taken = 0;
    while (log.connection.send(pattern(20'000), {.confirm = true})) ++taken;
    server.signal(SIGKILL);
    until(loop, [&] { return log.endings.size() == 1; });
    EXPECT_EQ(log.failed.size(), taken);
    EXPECT_EQ(log.endings[0].by, Ending::By::cut);
    EXPECT_EQ(log.endings[0].error_number, ECONNRESET);
  });
}

TEST(Processes, RunningOutOfDescriptorsNamesTheLimit) {
  if (!test::own_device()) GTEST_SKIP() << "connections of this device need no descriptors";
#ifdef __SANITIZE_ADDRESS__
  // The runtime tests with a pipe whether memory can be read, and fails without descriptors.
  GTEST_SKIP() << "the sanitizers need descriptors themselves";
#endif
  in_two_processes(echo, [](Child& server) {
    EventLoop loop;
    Log first;
    const auto port = server.read<std::uint16_t>();
    loop.connect({test::host(), port}, first.handlers());
    until(loop, [&] { return first.established == 1; });
    // Until the descriptors run out.
    const int next = dup(0);
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(next) + 1;
    setrlimit(RLIMIT_NOFILE, &limit);
    // The first connection may still give back some that it took to be established.
    std::list<Log> others;
    while (others.empty() || others.back().established == 1) {
      ASSERT_LT(others.size(), 32U);
      Log& another = others.emplace_back();
      try {
        loop.connect({test::host(), port}, another.handlers());
        until(loop, [&] { return another.errors.size() + another.established == 1; });
      } catch (const Error& error) {
        another.errors.emplace_back(error.what());
      }
    }
    const auto& errors = others.back().errors;
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_NE(errors[0].find("RLIMIT_NOFILE"), std::string::npos) << errors[0];
    first.connection.send("still there");
    until(loop, [&] { return first.texts.size() == 1; });
  });
}

// The peer's device does not answer any more, which only a timeout can detect. By TCP, because the
// devices of one host need nothing of a stopped process.
TEST(Processes, KeepaliveFindsAVanishedPeer) {
  if (!test::own_device()) GTEST_SKIP() << "the peer's device does not stop with its process";
  const auto over_tcp = [](int out) {
    setenv("WEFT_SAME_HOST", "off", 1);
    echo(out);
  };
  in_two_processes(over_tcp, [](Child& server) {
    EventLoop loop;
    Log log;
    Options options;
    options.keepalive = 100ms;
    loop.connect({test::host(), server.read<std::uint16_t>()}, log.handlers(), options);
    until(loop, [&] { return log.established == 1; });
    // A peer that is idle but works is not disconnected.
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

// A loop may be busy for a long time, with a long message or in a callback; its device still
// answers.
TEST(Processes, KeepaliveSparesAPeerWhoseLoopIsBusy) {
  for (const char* const same_host : {"auto", "off"}) {
    const auto busy = [same_host](int out) {
      setenv("WEFT_SAME_HOST", same_host, 1);
      EventLoop loop;
      Log log;
      std::optional<Connection> peer;
      const auto listener = loop.listen(
          {test::host(), 0}, [&](Request request) { peer = request.accept(log.handlers()); });
      const std::uint16_t port = listener.port();
      if (write(out, &port, sizeof port) < 0) return;
      until(loop, [&] { return log.established == 1; });
      pause();  // without a step, until the signal at the end
    };
    in_two_processes(busy, [](Child& server) {
      EventLoop loop;
      Log log;
      Options options;
      options.keepalive = 50ms;
      loop.connect({test::host(), server.read<std::uint16_t>()}, log.handlers(), options);
      until(loop, [&] { return log.established == 1; });
      const Deadline longer = 500ms;
      while (!longer.passed()) loop.step(longer);
      EXPECT_TRUE(log.endings.empty()) << log.errors.size();
      log.connection.send("still there");
      until(loop, [&] { return log.sent.size() == 1; });
    });
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool slow_by_sanitizers = true;
#else
constexpr bool slow_by_sanitizers = false;
#endif

// What they wait for arrives while the loop is in the callback of another connection.
TEST(Processes, KeepaliveSparesConnectionsBesideASlowCallback) {
  const auto over_tcp = [](int out) {
    setenv("WEFT_SAME_HOST", "off", 1);
    echo(out);
  };
  in_two_processes(over_tcp, [](Child& server) {
    // Long enough for a peer that has hardly any processor.
    constexpr auto interval = slow_by_sanitizers ? 4500ms : 1500ms;
    EventLoop loop;
    std::vector<Log> logs(5);
    int slow = 0;
    const auto port = server.read<std::uint16_t>();
    for (Log& log : logs) {
      Handlers handlers = log.handlers();
      if (&log == &logs.front()) {
        handlers.message = [&](Connection& connection, Received& got) {
          std::this_thread::sleep_for(interval * 3 / 2);
          ++slow;
          connection.send(got.bytes());
        };
      }
      loop.connect({test::host(), port}, std::move(handlers), {.keepalive = interval});
    }
    until(loop, [&] {
      return std::ranges::all_of(logs, [](const Log& log) { return log.established == 1; });
    });
    logs.front().connection.send("again and again");
    until(loop, [&] { return slow == 3; });
    for (const Log& log : logs) EXPECT_TRUE(log.endings.empty());
  });
}

}  // namespace
}  // namespace weft::message::testing
