// The pages of rings that were used are given back once the stream is idle.
#include <malloc.h>
#include <poll.h>

#include <chrono>
#include <fstream>
#include <future>
#include <string>

#include "stream/peer_process.h"
#include "stream/sides.h"
#include "support/device.h"

namespace weft::stream {
namespace {

// Of the rings in shared memory of this process, in KiB: proc_pid_smaps(5).
std::size_t resident_ring_kib() {
  std::ifstream maps("/proc/self/smaps");
  std::size_t sum = 0;
  bool ring = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with("Rss:")) {
      if (ring) sum += std::stoul(line.substr(line.find(':') + 1));
    } else if (line[0] < 'A' || line[0] > 'Z') {
      ring = line.find("memfd:weft-ring") != std::string::npos;
    }
  }
  return sum;
}

void transfer(Sides& sides, std::size_t size, std::uint64_t seed) {
  const auto bytes = test::pattern(size, seed);
  auto got = std::async(std::launch::async, [&] { return receive_all(*sides.passive, size); });
  EXPECT_EQ(sides.active.send(bytes, test_timeout).bytes, size);
  EXPECT_EQ(got.get(), bytes);
}

// Of all private memory of this process, in KiB.
std::size_t anonymous_kib() {
  std::ifstream sums("/proc/self/smaps_rollup");
  for (std::string line; std::getline(sums, line);) {
    if (line.starts_with("Anonymous:")) return std::stoul(line.substr(line.find(':') + 1));
  }
  return 0;
}

bool becomes_at_most(std::size_t kib, std::size_t (*resident_kib)() = resident_ring_kib) {
  const auto end = std::chrono::steady_clock::now() + test_timeout;
  while (resident_kib() > kib) {
    if (std::chrono::steady_clock::now() > end) return false;
    poll(nullptr, 0, 10);
  }
  return true;
}

// The first bytes of the ring stay in both mappings, and so do the counters.
TEST(IdleMemory, AGrownRingIsGivenBackAndUsedAgain) {
  Sides sides;
  const std::size_t before = resident_ring_kib();
  for (std::uint64_t round = 0; round < 3; ++round) {
    // The first bytes may be messages.
    transfer(sides, 1000, round);
    transfer(sides, std::size_t{6} << 20, round);
    if (sides.active.statistics().placed_bytes_sent == 0) {
      GTEST_SKIP() << "the ends do not share memory";
    }
    EXPECT_TRUE(becomes_at_most(before + std::size_t{2} * 40)) << resident_ring_kib();
  }
}

// Over TCP a send ring is private memory, and the last messages do not report that they are
// complete.
TEST(IdleMemory, ASendRingIsGivenBackAfterMessages) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory of their own for what was freed";
#endif
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // what this test frees is gone at once
  Sides sides;
  transfer(sides, 1000, 1);
  const std::size_t before = anonymous_kib();
  transfer(sides, std::size_t{6} << 20, 2);
  transfer(sides, 1000, 3);
  if (sides.active.statistics().placed_bytes_sent > 0) {
    GTEST_SKIP() << "the ends share memory";
  }
  EXPECT_TRUE(becomes_at_most(before + 1024, anonymous_kib)) << anonymous_kib();
  transfer(sides, std::size_t{6} << 20, 4);
}

// A stream that could not be closed at once goes on to give memory back.
TEST(IdleMemory, ASendRingIsGivenBackAfterAnAttemptToClose) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory of their own for what was freed";
#endif
  if (!test::own_device()) GTEST_SKIP() << "the peer's device does not stop with its process";
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  Peer peer({"echo"}, Peer::Carrier::tcp);
  Stream stream;
  stream.connect(peer.address(), test_timeout);
  const auto echo = [&](std::size_t size) {
    const auto bytes = test::pattern(size);
    auto got = std::async(std::launch::async, [&] { return receive_all(stream, size); });
    EXPECT_EQ(stream.send(bytes, test_timeout).bytes, size);
    EXPECT_EQ(got.get(), bytes);
  };
  echo(1000);
  const std::size_t before = anonymous_kib();
  echo(std::size_t{6} << 20);
  // The memory may be used again, so everything before it is complete as well.
  const auto region = stream.domain().allocate<std::byte>(1);
  ASSERT_TRUE(stream.send_registered(region.slice(), test_timeout).ok());
  ASSERT_EQ(receive_all(stream, 1).size(), 1U);
  peer.stop();
  EXPECT_FALSE(stream.close_if_sent()) << "the peer does not confirm the end";
  EXPECT_TRUE(becomes_at_most(before + 1024, anonymous_kib)) << anonymous_kib();
  EXPECT_FALSE(stream.close(Deadline::now()));
}

// What the peer has not read must stay.
TEST(IdleMemory, BytesThatWereNotReadStay) {
  Sides sides;
  transfer(sides, 1000, 1);
  transfer(sides, std::size_t{4} << 20, 2);
  if (sides.active.statistics().placed_bytes_sent == 0) {
    GTEST_SKIP() << "the ends do not share memory";
  }
  const auto bytes = test::pattern(std::size_t{300} * 1024, 3);
  ASSERT_EQ(sides.active.send(bytes, test_timeout).bytes, bytes.size());
  // Another stream becomes idle later than this one. It may have been already when this looks.
  const std::size_t before = resident_ring_kib();
  Sides other;
  transfer(other, 1000, 1);
  transfer(other, std::size_t{4} << 20, 2);
  EXPECT_TRUE(becomes_at_most(before + 512)) << before << " KiB before, " << resident_ring_kib();
  EXPECT_EQ(receive_all(*sides.passive, bytes.size()), bytes);
}

}  // namespace
}  // namespace weft::stream
