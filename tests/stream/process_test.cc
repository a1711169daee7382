// Streams between two processes, also when one of them is stopped or killed.
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <future>
#include <string>
#include <string_view>
#include <thread>

#include "base/descriptor.h"
#include "stream/peer_process.h"
#include "stream/shared_ring.h"
#include "stream/sides.h"
#include "support/device.h"
#include "support/host.h"

namespace weft::stream {
namespace {

bool processes_share_memory() {
  const char* const same_host = getenv("WEFT_SAME_HOST");
  return test::open_device().backend() == verbs::Backend::embedded &&
         !(same_host && std::string_view(same_host) == "off");
}

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
  EXPECT_EQ(outcome.status, TransferStatus::failed);
  EXPECT_EQ(outcome.error_number, ECONNRESET);
}

// Bytes that were sent before arrive all the same, and then the loss. The peer sends when it has
// received a byte: while a connection is being set up, what was sent may still wait in the process
// that sends it.
TEST_P(Processes, BytesOfAPeerThatIsKilledArrive) {
  constexpr std::size_t total = 20'000;
  Peer peer({"send", std::to_string(total)});
  Stream stream(options());
  stream.connect(peer.address(), test_timeout);
  EXPECT_TRUE(stream.send(std::vector<std::byte>(1), test_timeout).ok());
  EXPECT_EQ(peer.line(), "sent");
  peer.signal(SIGKILL);
  EXPECT_EQ(receive_all(stream, total), test::pattern(total));
  std::vector<std::byte> more(1);
  const auto outcome = stream.receive(more, test_timeout);
  EXPECT_EQ(outcome.status, TransferStatus::failed);
  EXPECT_EQ(outcome.error_number, ECONNRESET);
}

// A sender that waits for room when its peer is killed. Its messages have no answer, and the error
// is a reset all the same, as with TCP: programs that try again after ETIMEDOUT must not.
TEST_P(Processes, ASendToAPeerThatIsKilledFails) {
  Peer peer({"hold"});
  Stream stream(options());
  stream.connect(peer.address(), test_timeout);
  EXPECT_EQ(peer.line(), "connected");
  const auto bytes = test::pattern(4 * 1024 * 1024);
  auto sender = std::async(std::launch::async, [&] {
    while (stream.send(bytes, test_timeout).ok()) continue;
    return stream.send(bytes, test_timeout);
  });
  while (stream.statistics().bytes_sent == 0) std::this_thread::yield();
  peer.signal(SIGKILL);
  EXPECT_EQ(sender.get().error_number, ECONNRESET);
}

// A peer that is stopped reads nothing, and goes on where it was.
TEST_P(Processes, APeerThatWasStoppedGoesOn) {
  constexpr std::size_t total = 4 * 1024 * 1024;
  Peer peer({"read", std::to_string(total)});
  Stream stream(options());
  stream.connect(peer.address(), test_timeout);
  const auto bytes = test::pattern(total);
  peer.signal(SIGSTOP);
  std::size_t done = 0;
  while (true) {
    const auto outcome = stream.send(std::span(bytes).subspan(done), Deadline::now());
    ASSERT_NE(outcome.status, TransferStatus::failed) << outcome.error_number;
    done += outcome.bytes;
    if (outcome.would_block()) break;
  }
  EXPECT_LT(done, total);
  peer.signal(SIGCONT);
  EXPECT_TRUE(stream.send(std::span(bytes).subspan(done), test_timeout).ok());
  EXPECT_EQ(peer.line(), std::to_string(total) + " read, 0 wrong");
}

// Data go without messages as soon as both processes know each other's memory.
TEST_P(Processes, ProcessesOfOneHostPlaceTheirBytesThemselves) {
  if (!processes_share_memory()) GTEST_SKIP() << "the processes share no memory";
  Peer peer({"echo"});
  Stream stream(options());
  stream.connect(peer.address(), test_timeout);
  constexpr std::size_t size = 10'000;
  const auto bytes = test::pattern(size);
  constexpr int rounds = 200;
  for (int i = 0; i < rounds; ++i) {
    ASSERT_TRUE(stream.send(bytes, test_timeout).ok());
    ASSERT_EQ(receive_all(stream, size), bytes);
  }
  const auto counted = stream.statistics();
  EXPECT_EQ(counted.bytes_sent, rounds * size);
  EXPECT_EQ(counted.bytes_received, rounds * size);
  EXPECT_GT(counted.placed_bytes_sent, rounds * size / 2);
  EXPECT_LT(counted.data_messages_sent + counted.data_messages_received, rounds);
}

// From the third one on their devices connect them in another way, without TCP.
TEST_P(Processes, LaterStreamsPlaceTheirBytesAsWell) {
  if (!processes_share_memory()) GTEST_SKIP() << "the processes share no memory";
  constexpr int streams = 5;
  Peer peer({"echo", std::to_string(streams)});
  for (int i = 0; i < streams; ++i) {
    Stream stream(options());
    stream.connect(peer.address(), test_timeout);
    constexpr std::size_t size = 1000;
    const auto bytes = test::pattern(size);
    constexpr int rounds = 100;
    for (int round = 0; round < rounds; ++round) {
      ASSERT_TRUE(stream.send(bytes, test_timeout).ok());
      ASSERT_EQ(receive_all(stream, size), bytes);
    }
    const auto counted = stream.statistics();
    EXPECT_GT(counted.placed_bytes_sent, rounds * size / 2) << "stream " << i;
    EXPECT_LT(counted.data_messages_received, rounds) << "stream " << i;
    stream.close(test_timeout);
  }
}

// Writes to the bell when something is readable, as the peer does otherwise.
class Ringer final : public Stream::Watcher {
 public:
  explicit Ringer(int bell) : bell_(bell) {}
  void changed(const Stream::Readiness& now) noexcept override {
    if (now.readable && write(bell_, "", 1) < 0) std::abort();
  }
  [[nodiscard]] bool needs_every_arrival() const noexcept override { return false; }
  [[nodiscard]] bool looks() const noexcept override { return looks_; }
  void set_looks(bool looks) { looks_ = looks; }

 private:
  int bell_;
  std::atomic<bool> looks_{false};
};

// A stream to a peer that rings its bell.
class Belled {
 public:
  Belled(Options options, const Address& peer) : stream(with_bell(options)) {
    stream.connect(peer, test_timeout);
    stream.watch(&ringer);
  }
  ~Belled() {
    stream.unwatch(&ringer);
    stream.close(test_timeout);
  }
  Belled(const Belled&) = delete;
  Belled& operator=(const Belled&) = delete;

  // Takes all bells that have been rung.
  [[nodiscard]] bool await() const {
    pollfd entry{heard_.get(), POLLIN, 0};
    return ::poll(&entry, 1, 60'000) == 1 && take();
  }
  [[nodiscard]] bool take() const {
    std::array<char, 64> ignored{};
    return read(heard_.get(), ignored.data(), ignored.size()) > 0;
  }
  [[nodiscard]] int rung() const { return rung_.get(); }

 private:
  Options with_bell(Options options) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    heard_ = Descriptor(ends[0]);
    rung_ = Descriptor(ends[1]);
    options.bell = ends[1];
    return options;
  }

  Descriptor heard_;
  Descriptor rung_;

 public:
  Stream stream;
  Ringer ringer{rung_.get()};
};

// A thread that waits for a descriptor only is woken by the peer process itself.
TEST_P(Processes, APeerOfThisHostRingsTheBell) {
  if (!processes_share_memory()) GTEST_SKIP() << "the processes share no memory";
  Peer peer({"echo"});
  Belled belled(options(), peer.address());
  Stream& stream = belled.stream;
  const auto bytes = test::pattern(100);
  const auto echo = [&](const auto& await) {
    ASSERT_TRUE(stream.send(bytes, test_timeout).ok());
    std::vector<std::byte> got(bytes.size());
    std::size_t done = 0;
    while (done < got.size()) {
      ASSERT_TRUE(await());
      const auto outcome = stream.receive(std::span(got).subspan(done), Deadline::now());
      ASSERT_NE(outcome.status, TransferStatus::failed) << outcome.error_number;
      done += outcome.bytes;
    }
    EXPECT_EQ(got, bytes);
  };
  constexpr int rounds = 100;
  const auto hear = [&] { return belled.await(); };
  for (int i = 0; i < rounds; ++i) echo(hear);
  const auto bells = stream.readiness().bells;
  EXPECT_GT(bells, rounds / 2);

  // Nor is it rung for a watcher that looks, until it has to be woken again.
  belled.ringer.set_looks(true);
  stream.look();
  const auto before_looking = stream.readiness().bells;
  for (int i = 0; i < 10; ++i) {
    echo([&] {
      stream.look();
      return true;
    });
  }
  EXPECT_EQ(stream.readiness().bells, before_looking);
  belled.ringer.set_looks(false);
  EXPECT_TRUE(stream.report_again());
  while (belled.take()) continue;
  echo(hear);
  EXPECT_GT(stream.readiness().bells, before_looking);

  // Without a watcher the bell is not rung any more.
  stream.unwatch(&belled.ringer);
  const auto before = stream.readiness().bells;
  for (int i = 0; i < 10; ++i) echo([] { return true; });
  EXPECT_EQ(stream.readiness().bells, before);
}

// As a peer that was stopped when it had published bytes, and goes on now: this side has received
// them meanwhile, and has asked for the next ones. Returns whether it had.
bool ring_late(int bell) {
  bool rung = false;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:weft-ring") == std::string::npos) continue;
    auto& asked =
        reinterpret_cast<detail::RingCounters*>(std::stoul(line, nullptr, 16))->reader_sleeps;
    // The other ring is the peer's, in which it asks for messages.
    const std::uint32_t seen = asked;
    const auto by = static_cast<detail::WakeBy>(seen & ((1U << detail::wake_by_bits) - 1));
    if (by != detail::WakeBy::bell || detail::answer_request(asked, seen) != by) continue;
    rung = write(bell, "", 1) == 1;
  }
  return rung;
}

// That request is answered without bytes, so it has to be made again.
TEST_P(Processes, ABellThatAnnouncesNothingIsAskedForAgain) {
  if (!processes_share_memory()) GTEST_SKIP() << "the processes share no memory";
  Peer peer({"echo"});
  Belled belled(options(), peer.address());
  Stream& stream = belled.stream;
  const auto bytes = test::pattern(100);
  int late = 0;
  // Messages carry the first bytes, and the peer answers them by messages.
  for (int i = 0; i < 1000 && late < 10; ++i) {
    ASSERT_TRUE(stream.send(bytes, test_timeout).ok());
    std::vector<std::byte> got(bytes.size());
    for (std::size_t done = 0; done < got.size();) {
      ASSERT_TRUE(belled.await()) << i;
      done += stream.receive(std::span(got).subspan(done), Deadline::now()).bytes;
    }
    ASSERT_EQ(got, bytes);
    if (!ring_late(belled.rung())) continue;
    ++late;
    ASSERT_TRUE(belled.await());
    std::byte none{};
    const auto outcome = stream.receive(std::span(&none, 1), Deadline::now());
    ASSERT_EQ(outcome.status, TransferStatus::would_block);
  }
  EXPECT_EQ(late, 10);
  EXPECT_GE(stream.readiness().bells, 10);
}

// Over TCP: between processes of one host, a write needs no answer of the peer's process.
TEST_P(Processes, KeepaliveFindsAPeerThatStopped) {
  if (!test::own_device()) GTEST_SKIP() << "the peer's device does not stop with its process";
  Peer peer({"hold"}, Peer::Carrier::tcp);
  Options wanted = options();
  // A peer that runs may have to wait long for a processor, which must not look like its end.
  wanted.keepalive = Keepalive{20ms, test_timeout, 2};
  Stream stream(wanted);
  stream.connect(peer.address(), test_timeout);
  EXPECT_EQ(peer.line(), "connected");
  // The peer's program is blocked, but its device answers.
  while (stream.statistics().answered_probes < 3) {
    ASSERT_EQ(stream.state(), State::connected);
    usleep(1000);
  }
  peer.signal(SIGSTOP);
  wanted.keepalive = Keepalive{20ms, 50ms, 2};
  stream.set_options(wanted);
  std::vector<std::byte> more(1);
  const auto outcome = stream.receive(more, test_timeout);
  EXPECT_EQ(outcome.status, TransferStatus::failed);
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

// The child has no thread of the device and none of its shared memory.
TEST(StreamProcesses, AForkedChildGetsErrorsAndTheParentGoesOn) {
  Sides sides;
  const pid_t child = fork();
  if (child == 0) {
    std::array<std::byte, 8> into{};
    const bool refused = !sides.active.send(bytes_of("child"), 1s).ok();
    const bool nothing = !sides.passive->receive(into, Deadline::now()).ok();
    _exit(refused && nothing ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(sides.active.send(bytes_of("parent"), test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(*sides.passive, 6)), "parent");
}

// Ends the child's process with 0 if `body` returns true. A child that waits for what only a thread
// of the parent could do is ended by a signal.
template <typename Body>
int status_of_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(StreamProcesses, AForkedChildWaitsForNoThreadOfItsParent) {
  Sides sides;
  std::thread reader([&] {
    std::array<std::byte, 2> into{};
    EXPECT_TRUE(sides.passive->receive(into, test_timeout, {.wait_all = true}).ok());
  });
  ASSERT_TRUE(sides.active.send(bytes_of("x"), test_timeout).ok());
  // Once it has taken the first byte, its call has the turn to receive until the second one comes.
  while (sides.passive->statistics().bytes_received == 0 || sides.passive->bytes_available() > 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(status_of_child([&] {
              EXPECT_EQ(sides.passive->error_number(), ENODEV);
              sides.passive.reset();
              sides.active = Stream();
              return true;
            }),
            0);
  ASSERT_TRUE(sides.active.send(bytes_of("x"), test_timeout).ok());
  reader.join();
}

TEST(StreamProcesses, AForkedChildTakesNoLockOfItsParent) {
  Sides sides;
  std::atomic<bool> ends{false};
  std::thread busy([&] {
    std::array<std::byte, 1> byte{};
    while (!ends) {
      EXPECT_TRUE(sides.active.send(bytes_of("x"), test_timeout).ok());
      EXPECT_TRUE(sides.passive->receive(byte, test_timeout).ok());
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(status_of_child([&] {
                std::array<std::byte, 1> byte{};
                const bool refused = !sides.active.send(bytes_of("y"), Deadline::now()).ok();
                const bool nothing = !sides.passive->receive(byte, Deadline::now()).ok();
                sides.passive.reset();
                return refused && nothing;
              }),
              0);
  }
  ends = true;
  busy.join();
}

}  // namespace
}  // namespace weft::stream
