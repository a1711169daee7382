// Streams between two processes, also when one of them is stopped or killed.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "stream/sides.h"
#include "support/host.h"
#include "support/program.h"

namespace weft::stream {
namespace {

// Runs tests/stream/peer.cc, which prints its port first. Killed by the destructor.
class Peer : public test::Program {
 public:
  explicit Peer(std::vector<std::string> arguments)
      : Program(WEFT_STREAM_PEER, std::move(arguments)),
        port_(static_cast<std::uint16_t>(std::atoi(line().c_str()))) {}
  ~Peer() { signal(SIGKILL); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] Address address() const { return {test::host(), port_}; }

 private:
  std::uint16_t port_;
};

class Processes : public BothVariants {};
WEFT_BOTH_VARIANTS(Processes);

TEST_P(Processes, EverythingReachesASlowReader) {
  constexpr std::size_t total = 16 * 1024 * 1024;
  Peer peer({"read", std::to_string(total)});
  Stream stream(options());
  stream.connect(peer.address(), test_timeout);
  const auto bytes = test::pattern(total);
  EXPECT_EQ(stream.send(bytes, test_timeout).bytes, total);
  EXPECT_EQ(peer.line(), std::to_string(total) + " read, 0 wrong");
  std::vector<std::byte> more(1);
  EXPECT_TRUE(stream.receive(more, test_timeout).end());
}

TEST_P(Processes, AnEchoComesBackWhole) {
  Peer peer({"echo"});
  Stream stream(options());
  stream.connect(peer.address(), test_timeout);
  for (const std::size_t size : {1U, 13U, 9'999U, 10'001U}) {
    const auto bytes = test::pattern(size, size);
    ASSERT_TRUE(stream.send(bytes, test_timeout).ok());
    EXPECT_EQ(receive_all(stream, size), bytes);
  }
  stream.finish();
  std::vector<std::byte> more(1);
  EXPECT_TRUE(stream.receive(more, test_timeout).end());
}

TEST_P(Processes, APeerThatIsKilledIsAReset) {
  Peer peer({"hold"});
  Stream stream(options());
  stream.connect(peer.address(), test_timeout);
  EXPECT_EQ(peer.line(), "connected");
  peer.signal(SIGKILL);
  std::vector<std::byte> more(1);
  const auto outcome = stream.receive(more, test_timeout);
  EXPECT_EQ(outcome.status, Status::failed);
  EXPECT_EQ(outcome.error_number, ECONNRESET);
}

TEST_P(Processes, KeepaliveFindsAPeerThatStopped) {
  Peer peer({"hold"});
  Options wanted = options();
  wanted.keepalive = Keepalive{20ms, 50ms, 2};
  Stream stream(wanted);
  stream.connect(peer.address(), test_timeout);
  EXPECT_EQ(peer.line(), "connected");
  // The peer's program is blocked, but its device answers.
  while (stream.statistics().answered_probes < 3) {
    ASSERT_EQ(stream.state(), State::connected);
    usleep(1000);
  }
  peer.signal(SIGSTOP);
  std::vector<std::byte> more(1);
  const auto outcome = stream.receive(more, test_timeout);
  EXPECT_EQ(outcome.status, Status::failed);
  EXPECT_EQ(outcome.error_number, ETIMEDOUT);
}

TEST_P(Processes, WaitingTakesNoProcessor) {
  Peer peer({"hold"});
  Stream stream(options());
  stream.connect(peer.address(), test_timeout);
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto of = [](const timeval& time) { return time.tv_sec * 1'000'000 + time.tv_usec; };
    return of(usage.ru_utime) + of(usage.ru_stime);
  };
  const auto before = used();
  std::vector<std::byte> more(1);
  EXPECT_TRUE(stream.receive(more, 500ms).would_block());
  EXPECT_LT(used() - before, 50'000) << "a tenth of one processor";
}

}  // namespace
}  // namespace weft::stream
