// Messages on a device without a thread of its own (WEFT_PROGRESS=manual): the loop drives it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <vector>

#include "weft/message.hpp"

namespace weft::message {
namespace {

constexpr std::chrono::seconds timeout{60};

// Before the first use of the device.
const bool manual = setenv("WEFT_PROGRESS", "manual", 1) == 0;

struct Two {
  explicit Two(EventLoop& loop)
      : listener(loop.listen({"127.0.0.1", 0}, [this](Request request) {
          accepted = request.accept({
              .message = [this](Connection&,
                                Received& received) { bytes += received.bytes().size(); },
          });
        })) {
    connection = loop.connect({"127.0.0.1", listener.port()},
                              {.established = [this](Connection&) { connected = true; }});
  }

  Listener listener;
  std::optional<Connection> accepted;
  std::optional<Connection> connection;
  bool connected = false;
  std::size_t bytes = 0;
};

void run_until(EventLoop& loop, const std::function<bool()>& done, bool spins) {
  const Deadline deadline = timeout;
  while (!done()) {
    ASSERT_FALSE(deadline.passed()) << "no progress";
    loop.step(spins ? Deadline::now() : Deadline(std::chrono::seconds(1)));
  }
}

void exchange(bool spins) {
  EventLoop loop;
  Two two(loop);
  run_until(
      loop, [&] { return two.connected; }, spins);
  const std::vector<std::byte> small(100);
  const std::vector<std::byte> large(1'000'000);
  (void)two.connection->send(small);
  (void)two.connection->send(large);
  run_until(
      loop, [&] { return two.bytes == small.size() + large.size(); }, spins);
}

TEST(MessagesWithoutAProgressThread, MoveWhileTheLoopWaits) {
  ASSERT_TRUE(manual);
  exchange(false);
}

TEST(MessagesWithoutAProgressThread, MoveWhileTheLoopOnlyLooks) {
  exchange(true);
}

TEST(MessagesWithoutAProgressThread, AnotherLoopCannotWaitForThem) {
  EventLoop loop;
  try {
    (void)loop.fd();
    FAIL() << "a descriptor";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EOPNOTSUPP);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("WEFT_PROGRESS=manual"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("step()"));
  }
}

}  // namespace
}  // namespace weft::message
