// Streams between two processes, and what is left when one of them stops or dies.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "stream/sides.h"
#include "support/host.h"
#include "support/program.h"

namespace weft::stream {
namespace {

// tests/stream/peer.cc with these arguments, which prints its port first; killed at the end.
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
  stream.connect(peer.address(), patience);
  const auto bytes = test::pattern(total);
  EXPECT_EQ(stream.send(bytes, patience).bytes, total);
  EXPECT_EQ(peer.line(), std::to_string(total) + " read, 0 wrong");
  std::vector<std::byte> more(1);
  EXPECT_TRUE(stream.receive(more, patience).end());
}

TEST_P(Processes, AnEchoComesBackWhole) {
  Peer peer({"echo"});
  Stream stream(options());
  stream.connect(peer.address(), patience);
  for (const std::size_t size : {1U, 13U, 9'999U, 10'001U}) {
    const auto bytes = test::pattern(size, size);
    ASSERT_TRUE(stream.send(bytes, patience).ok());
    EXPECT_EQ(receive_all(stream, size), bytes);
  }
  stream.finish();
  std::vector<std::byte> more(1);
  EXPECT_TRUE(stream.receive(more, patience).end());
}

TEST_P(Processes, APeerThatIsKilledIsAReset) {
  Peer peer({"hold"});
  Stream stream(options());
  stream.connect(peer.address(), patience);
  EXPECT_EQ(peer.line(), "connected");
  peer.signal(SIGKILL);
  std::vector<std::byte> more(1);
  const auto outcome = stream.receive(more, patience);
  EXPECT_EQ(outcome.status, Status::failed);
  EXPECT_EQ(outcome.error_number, ECONNRESET);
}

TEST_P(Processes, KeepaliveFindsAPeerThatStopped) {
  Peer peer({"hold"});
  Options wanted = options();
  wanted.keepalive = Keepalive{20ms, 50ms, 2};
  Stream stream(wanted);
  stream.connect(peer.address(), patience);
  EXPECT_EQ(peer.line(), "connected");
  // Its device answers, although its program does not.
  while (stream.statistics().answered_probes < 3) {
    ASSERT_EQ(stream.state(), State::connected);
    usleep(1000);
  }
  peer.signal(SIGSTOP);
  std::vector<std::byte> more(1);
  const auto outcome = stream.receive(more, patience);
  EXPECT_EQ(outcome.status, Status::failed);
  EXPECT_EQ(outcome.error_number, ETIMEDOUT);
}

TEST_P(Processes, WaitingTakesNoProcessor) {
  Peer peer({"hold"});
  Stream stream(options());
  stream.connect(peer.address(), patience);
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
