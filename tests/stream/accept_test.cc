// Accepting, while peers are silent after their request.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <future>
#include <vector>

#include "stream/accept_queue.h"
#include "stream/sides.h"
#include "stream/silent_stream.h"
#include "support/device.h"

namespace weft::stream {
namespace {

using test::was_accepted;

Descriptor silent_peer(const Listener& listener) {
  return test::silent_stream(listener.port());
}

class Accepting : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::own_device()) GTEST_SKIP() << "the peers are clients of TCP";
    listener.listen();
  }

  Listener listener{{test::host(), 0}};
};

TEST_F(Accepting, ASilentPeerKeepsNoOtherOneWaiting) {
  const Descriptor silent = silent_peer(listener);
  auto served = std::async(std::launch::async, [&] { return listener.accept(test_timeout); });
  ASSERT_TRUE(was_accepted(silent));
  Stream active;
  active.connect({test::host(), listener.port()}, test_timeout);
  Stream passive = served.get();
  // It was not given up before.
  std::byte none{};
  EXPECT_EQ(recv(silent.get(), &none, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_TRUE(active.send(bytes_of("x"), test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(passive, 1)), "x");
}

// A call whose deadline passes loses no peer.
TEST_F(Accepting, APeerIsKeptForTheNextCall) {
  Stream active;
  active.start_connecting({test::host(), listener.port()});
  std::optional<Stream> passive;
  while (!passive) {
    try {
      passive = listener.accept(Deadline::now());
    } catch (const Error& error) {
      ASSERT_EQ(error.error_number(), ETIMEDOUT);
    }
  }
  EXPECT_TRUE(active.await_connected(test_timeout));
}

TEST_F(Accepting, SilentPeersMakeRoom) {
  std::vector<Descriptor> silent;
  for (std::size_t i = 0; i < detail::AcceptQueue::most; ++i) {
    silent.push_back(silent_peer(listener));
    EXPECT_THROW((void)listener.accept(Deadline::now()), Error);
    pollfd answered{silent.back().get(), POLLIN, 0};
    while (poll(&answered, 1, 0) == 0) EXPECT_THROW((void)listener.accept(1ms), Error);
    ASSERT_TRUE(was_accepted(silent.back()));
  }
  Stream active;
  active.start_connecting({test::host(), listener.port()});
  const auto began = std::chrono::steady_clock::now();
  const Stream passive = listener.accept(test_timeout);
  EXPECT_TRUE(active.await_connected(test_timeout));
  // The device gives each of them up after 20 s.
  EXPECT_LT(std::chrono::steady_clock::now() - began, 15s);
  // The oldest one was given up for it.
  std::byte none{};
  EXPECT_LE(recv(silent.front().get(), &none, 1, 0), 0);
}

// A server that sends first must not be told that it can, again and again.
TEST_F(Accepting, AStreamIsNotWritableBeforeItsPeerHasAnswered) {
  const Descriptor silent = silent_peer(listener);
  auto request = listener.next(test_timeout);
  ASSERT_TRUE(request);
  Stream stream = std::move(*request).accept();
  ASSERT_TRUE(was_accepted(silent));
  EXPECT_EQ(stream.state(), State::connecting);
  EXPECT_FALSE(stream.readiness().writable);
  EXPECT_TRUE(stream.peek_send().would_block());
  pollfd entry{stream.send_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0);
}

// As threads that call accept(2) for one socket.
TEST_F(Accepting, ManyThreadsGetAStreamEach) {
  constexpr int many = 8;
  const Descriptor silent = silent_peer(listener);
  std::vector<std::future<Stream>> served;
  for (int i = 0; i < many; ++i) {
    served.push_back(std::async(std::launch::async, [&] { return listener.accept(test_timeout); }));
  }
  std::vector<Stream> active(many);
  for (Stream& stream : active) stream.start_connecting({test::host(), listener.port()});
  for (auto& each : served) EXPECT_EQ(each.get().state(), State::connected);
  for (Stream& stream : active) EXPECT_TRUE(stream.await_connected(test_timeout));
}

}  // namespace
}  // namespace weft::stream
