// Scenarios that ask for two processes. The child is forked before this process has a device.
#include "message/processes.h"

namespace weft::message::testing {
namespace {

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
