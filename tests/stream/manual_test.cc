// Streams on a device without a thread of its own (WEFT_PROGRESS=manual). Each test has one thread,
// which does not wait in calls of Weft, so nothing but the library itself can move the data.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "weft/stream.hpp"

namespace weft::stream {
namespace {

constexpr std::chrono::seconds timeout{60};

// Before the first use of the device.
const bool manual = setenv("WEFT_PROGRESS", "manual", 1) == 0;

// Sleeps in poll(2) alone until `done`.
void poll_until(const std::vector<int>& fds, const std::function<bool()>& done) {
  const Deadline deadline = timeout;
  std::vector<pollfd> entries;
  for (const int fd : fds) entries.push_back({fd, POLLIN, 0});
  while (!done()) {
    ASSERT_FALSE(deadline.passed()) << "nothing was readable";
    ::poll(entries.data(), entries.size(), 1000);
  }
}

struct Two {
  Two() : listener({"127.0.0.1", 0}) {
    listener.listen();
    client.start_connecting({"127.0.0.1", listener.port()});
    poll_until({listener.fd()}, [&] {
      auto request = listener.next(Deadline::now());
      if (request) server.emplace(std::move(*request).accept());
      return server.has_value();
    });
    if (!server) return;
    poll_until({client.fd(), server->fd()}, [&] {
      return client.await_connected(Deadline::now()) && server->await_connected(Deadline::now());
    });
  }

  Listener listener;
  Stream client;
  std::optional<Stream> server;
};

TEST(StreamsWithoutAProgressThread, ConnectAndMoveTheirBytes) {
  ASSERT_TRUE(manual);
  Two two;
  ASSERT_TRUE(two.server);
  std::vector<std::byte> sent(3'000'000);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7);
  std::vector<std::byte> received(sent.size());
  std::size_t out = 0;
  std::size_t in = 0;
  poll_until({two.client.fd(), two.client.send_fd(), two.server->fd()}, [&] {
    if (out < sent.size())
      out += two.client.send(std::span(sent).subspan(out), Deadline::now()).bytes;
    const auto got = two.server->receive(std::span(received).subspan(in), Deadline::now());
    EXPECT_FALSE(got.end());
    in += got.bytes;
    return in == sent.size();
  });
  EXPECT_EQ(received, sent);
}

TEST(StreamsWithoutAProgressThread, SeeTheEnd) {
  Two two;
  ASSERT_TRUE(two.server);
  two.client.finish();
  std::byte byte{};
  poll_until({two.server->fd()},
             [&] { return two.server->receive(std::span(&byte, 1), Deadline::now()).end(); });
  poll_until({}, [&] { return two.server->close_if_sent(); });
}

// In this thread, which then drives the device itself.
TEST(StreamsWithoutAProgressThread, WaitInCalls) {
  Two two;
  ASSERT_TRUE(two.server);
  std::vector<std::byte> bytes(100'000);
  EXPECT_TRUE(two.client.send(std::span(bytes).first(20'000), timeout).ok());
  EXPECT_TRUE(
      two.server->receive(std::span(bytes).first(20'000), timeout, {.wait_all = true}).ok());
  EXPECT_TRUE(two.client.close(timeout));
  EXPECT_TRUE(two.server->receive(bytes, timeout).end());
}

}  // namespace
}  // namespace weft::stream
