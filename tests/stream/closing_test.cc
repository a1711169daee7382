// Closing, while calls of other threads wait for a peer that has stopped.
#include <poll.h>
#include <signal.h>

#include <future>
#include <optional>

#include "stream/peer_process.h"
#include "stream/sides.h"
#include "support/device.h"

namespace weft::stream {
namespace {

class Closing : public BothVariants {
 protected:
  void SetUp() override {
    BothVariants::SetUp();
    if (!test::own_device()) GTEST_SKIP() << "the peer's device does not stop with its process";
    peer_.emplace(std::vector<std::string>{"hold"}, Peer::Carrier::tcp);
    stream_.emplace(options());
    stream_->connect(peer_->address(), test_timeout);
    EXPECT_EQ(peer_->line(), "connected");
    peer_->stop();
  }

  std::optional<Peer> peer_;
  std::optional<Stream> stream_;
};
WEFT_BOTH_VARIANTS(Closing);

// The device reads the memory until the disconnection ends the requests.
TEST_P(Closing, EndsASendFromRegisteredMemory) {
  auto bytes = test::pattern(10'000);
  auto region = stream_->domain().register_memory(std::span(bytes));
  auto sender =
      std::async(std::launch::async, [&] { return stream_->send_registered(region.slice()); });
  while (stream_->statistics().bytes_sent < bytes.size()) std::this_thread::yield();
  EXPECT_FALSE(stream_->close_if_sent()) << "the device still reads the memory";
  EXPECT_FALSE(stream_->close(Deadline::now()));
  ASSERT_EQ(sender.wait_for(test_timeout), std::future_status::ready);
  EXPECT_EQ(sender.get().bytes, bytes.size());
}

TEST_P(Closing, HasADeadlineWhileABufferIsBeingMapped) {
  std::vector<std::byte> memory(100);
  auto mapping = std::async(std::launch::async, [&] { return stream_->map_buffer(memory, -1); });
  // As soon as the mapping has its turn, other senders have none.
  while (stream_->peek_send().ok()) std::this_thread::yield();
  auto closed = std::async(std::launch::async, [&] { return stream_->close(10ms); });
  const bool ends = closed.wait_for(test_timeout) == std::future_status::ready;
  EXPECT_TRUE(ends);
  if (!ends) peer_->signal(SIGKILL);
  EXPECT_FALSE(closed.get());
  EXPECT_THROW((void)mapping.get(), Error);
}

// A stream that could not be closed at once still finds out that its peer is gone.
TEST_P(Closing, LeavesTheKeepaliveOfAStreamThatIsNotClosed) {
  Options wanted = options();
  wanted.keepalive = Keepalive{1000ms, 50ms, 2};
  stream_->set_options(wanted);
  if (stream_->close_if_sent()) GTEST_SKIP() << "the peer was found to be gone before";
  const Deadline deadline = test_timeout;
  while (stream_->error_number() == 0 && !deadline.passed()) poll(nullptr, 0, 10);
  EXPECT_EQ(stream_->error_number(), ETIMEDOUT);
}

// A second call has its own deadline, and abort() ends the first one.
TEST_P(Closing, EndsWithAReset) {
  const auto bytes = test::pattern(10'000);
  ASSERT_TRUE(stream_->send(bytes, test_timeout).ok());
  auto first = std::async(std::launch::async, [&] { return stream_->close(Deadline::never()); });
  while (stream_->state() != State::closed) std::this_thread::yield();
  auto second = std::async(std::launch::async, [&] { return stream_->close(10ms); });
  EXPECT_EQ(second.wait_for(test_timeout), std::future_status::ready);
  stream_->abort();
  const bool ends = first.wait_for(test_timeout) == std::future_status::ready;
  EXPECT_TRUE(ends);
  if (!ends) peer_->signal(SIGKILL);
  EXPECT_FALSE(first.get());
  EXPECT_FALSE(second.get());
}

}  // namespace
}  // namespace weft::stream
