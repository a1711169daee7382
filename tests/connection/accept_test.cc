// Accepting, while peers are silent after their request.
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <vector>

#include "connection/accept_queue.h"
#include "support/device.h"
#include "support/silent_peer.h"
#include "weft/connection.hpp"

namespace weft::connection {
namespace {

using namespace std::chrono_literals;
using test::was_accepted;

constexpr auto patience = 20s;

class AcceptingConnections : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::own_device()) GTEST_SKIP() << "the peers are clients of TCP";
  }

  [[nodiscard]] Descriptor silent_peer() const { return test::silent_peer(listener.port(), {}); }
  [[nodiscard]] auto connecting() const {
    return std::async(std::launch::async, [port = listener.port()] {
      return connect({test::host(), port}, patience);
    });
  }

  Listener listener{{test::host(), 0}};
};

TEST_F(AcceptingConnections, ASilentPeerKeepsNoOtherOneWaiting) {
  const Descriptor silent = silent_peer();
  auto served = std::async(std::launch::async, [&] { return listener.accept(patience); });
  ASSERT_TRUE(was_accepted(silent));
  auto active = connecting();
  const Connection passive = served.get();
  EXPECT_NO_THROW((void)active.get());
  // It was not given up before.
  std::byte none{};
  EXPECT_EQ(recv(silent.get(), &none, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(AcceptingConnections, APeerThatIsGoneIsSkipped) {
  Descriptor gone = silent_peer();
  auto served = std::async(std::launch::async, [&] { return listener.accept(patience); });
  ASSERT_TRUE(was_accepted(gone));
  gone = Descriptor();
  auto active = connecting();
  const Connection passive = served.get();
  EXPECT_NO_THROW((void)active.get());
}

TEST_F(AcceptingConnections, APeerThatIsGoneBeforeIsSkipped) {
  for (int i = 0; i < 20; ++i) (void)silent_peer();
  auto active = connecting();
  const Connection passive = listener.accept(patience);
  EXPECT_NO_THROW((void)active.get());
}

// A call whose deadline passes loses no peer.
TEST_F(AcceptingConnections, APeerIsKeptForTheNextCall) {
  auto active = connecting();
  std::optional<Connection> passive;
  while (!passive) {
    try {
      passive = listener.accept(Deadline::now());
    } catch (const Error& error) {
      ASSERT_EQ(error.error_number(), ETIMEDOUT);
    }
  }
  EXPECT_NO_THROW((void)active.get());
}

TEST_F(AcceptingConnections, SilentPeersMakeRoom) {
  std::vector<Descriptor> silent;
  for (std::size_t i = 0; i < detail::AcceptQueue::most; ++i) {
    silent.push_back(silent_peer());
    pollfd answered{silent.back().get(), POLLIN, 0};
    while (poll(&answered, 1, 0) == 0) EXPECT_THROW((void)listener.accept(1ms), Error);
    ASSERT_TRUE(was_accepted(silent.back()));
  }
  auto active = connecting();
  const auto began = std::chrono::steady_clock::now();
  const Connection passive = listener.accept(patience);
  EXPECT_NO_THROW((void)active.get());
  // The device gives each of them up after 20 s.
  EXPECT_LT(std::chrono::steady_clock::now() - began, 15s);
  // The oldest one was given up for it.
  std::byte none{};
  EXPECT_LE(recv(silent.front().get(), &none, 1, 0), 0);
}

// A greeting that is too long is the program's mistake, not the peer's.
TEST_F(AcceptingConnections, AGreetingThatIsTooLongIsReported) {
  auto active = connecting();
  const std::vector<std::byte> much(10'000);
  try {
    (void)listener.accept(patience, {.private_data = much});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
  }
  EXPECT_THROW((void)active.get(), Rejected);
}

}  // namespace
}  // namespace weft::connection
