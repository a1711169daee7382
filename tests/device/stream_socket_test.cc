// What a connection knows about bytes that its peer's TCP has, which decides how requests end when
// the connection is lost.
#include <netinet/tcp.h>
#include <sys/syscall.h>

#include <string>

#include "device/connect/stream_socket.h"
#include "device/pair_fixture.h"
#include "support/refuse.h"

namespace weft::device {
namespace {

void send_all(StreamSocket& socket, std::string text) {
  const iovec piece{text.data(), text.size()};
  ASSERT_EQ(socket.send({&piece, 1}), static_cast<std::ptrdiff_t>(text.size()));
}

// For each end, because the byte of the SYN is that of the active one.
void count_acknowledged_bytes() {
  for (const bool active : {true, false}) {
    Refusals refusals;
    LocalListeners listeners(refusals);
    auto [one, other] = Pair::sockets(listeners);
    StreamSocket sender(std::move(active ? one : other), TcpEnds{}, nullptr, active);
    const sys::Descriptor peer = std::move(active ? other : one);
    EXPECT_EQ(sender.acknowledged_bytes(), 0U);
    send_all(sender, "twelve bytes");
    // The peer's TCP acknowledges when it likes, whether or not the peer reads.
    while (sender.acknowledged_bytes() < 12) EXPECT_EQ(sys::poll_readable(peer.get(), 1), 1);
    EXPECT_EQ(sender.acknowledged_bytes(), 12U);
    // Nor does the end of this side change that.
    sender.shutdown_write();
    while (sender.acknowledged_bytes() < 12) EXPECT_EQ(sys::poll_readable(peer.get(), 1), 1);
    EXPECT_EQ(sender.acknowledged_bytes(), 12U);
  }
}

TEST(StreamSocket, KnowsWhatThePeersTcpHas) {
  count_acknowledged_bytes();
}

TEST(StreamSocket, KnowsItWithoutTcpInfo) {
  const bool possible =
      test::run_without({{SYS_getsockopt, 2, TCP_INFO}}, EPERM, count_acknowledged_bytes);
  if (!possible) GTEST_SKIP() << "no seccomp filters here";
}

// A peer that closes while it has unread bytes resets the connection.
TEST(StreamSocket, KnowsItAfterAReset) {
  const auto after_reset = [] {
    Refusals refusals;
    LocalListeners listeners(refusals);
    auto [one, other] = Pair::sockets(listeners);
    StreamSocket sender(std::move(one), TcpEnds{}, nullptr, true);
    send_all(sender, "twelve bytes");
    while (sender.acknowledged_bytes() < 12) EXPECT_EQ(sys::poll_readable(other.get(), 1), 1);
    other.reset();
    EXPECT_EQ(sys::poll_readable(sender.fd(), 10'000), 1);
    EXPECT_EQ(sender.acknowledged_bytes(), 12U);
  };
  after_reset();
  const bool possible = test::run_without({{SYS_getsockopt, 2, TCP_INFO}}, EPERM, after_reset);
  if (!possible) GTEST_SKIP() << "no seccomp filters here";
}

}  // namespace
}  // namespace weft::device
