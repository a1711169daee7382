// The listener of the C interface, while peers are silent after their request.
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <vector>

#include "c/stream_acceptor.h"
#include "stream/silent_stream.h"
#include "support/device.h"

namespace weft::c {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 20s;

bool is_readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

TEST(StreamAcceptor, SilentPeersMakeRoom) {
  if (!test::own_device()) GTEST_SKIP() << "the peers are clients of TCP";
  stream::Listener listener({test::host(), 0});
  listener.listen();
  const std::uint16_t port = listener.port();
  StreamAcceptor acceptor(std::move(listener), {});
  std::vector<Descriptor> silent;
  for (std::size_t i = 0; i < stream::detail::AcceptQueue::most; ++i) {
    silent.push_back(test::silent_stream(port));
    while (!is_readable(silent.back().get(), 0)) EXPECT_FALSE(acceptor.accept(Deadline(1ms)));
    ASSERT_TRUE(test::was_accepted(silent.back()));
  }
  stream::Stream active;
  active.start_connecting({test::host(), port});
  // A request that waits for room makes no program look again and again, and one that waits for the
  // descriptor looks once there is room.
  EXPECT_FALSE(acceptor.accept(Deadline::now()));
  std::optional<stream::Stream> passive;
  int looks = 0;
  for (const Deadline deadline(patience); !passive && !deadline.passed(); ++looks) {
    EXPECT_TRUE(is_readable(acceptor.fd(), 20'000));
    passive = acceptor.accept(Deadline::now());
  }
  EXPECT_TRUE(passive);
  EXPECT_LT(looks, 100);
  EXPECT_TRUE(active.await_connected(patience));
  // The oldest one was given up for it.
  std::byte none{};
  EXPECT_LE(recv(silent.front().get(), &none, 1, 0), 0);
}

}  // namespace
}  // namespace weft::c
