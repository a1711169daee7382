// Captures of Linux's software RoCE (rxe) between two machines, against what the programs that made
// them printed: sizes, checksums, strings, completions.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "capture/stored_capture.h"

namespace weft::capture::test {
namespace {

using Memory = std::vector<std::byte>;

void expect_clean(const ReadCapture& read) {
  EXPECT_TRUE(read.traffic.violations.empty());
  EXPECT_EQ(read.traffic.lost_bytes, 0U);
  EXPECT_EQ(read.traffic.lost_packets, 0U);
  EXPECT_EQ(read.traffic.unknown_answers, 0U);
  const auto& counts = read.analysis.infiniband();
  EXPECT_EQ(counts.bad_checksum + counts.malformed + counts.cut_short + counts.unknown, 0U);
}

// The memory that the server of the size tests opens to its client.
Memory fresh_target() {
  Memory memory(69'632);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(1 + 3 * i);
  EXPECT_EQ(adler(memory), 0xd4617feaU);
  return memory;
}

void apply_writes(const ReadCapture& read, ConnectionId connection, std::uint64_t base,
                  Memory& memory) {
  for (const auto& [key, message] : read.traffic.writes) {
    if (std::get<0>(key) != connection) continue;
    const std::uint64_t offset = message.address - base;
    ASSERT_LE(offset + message.bytes.size(), memory.size());
    std::ranges::copy(message.bytes, memory.begin() + static_cast<std::ptrdiff_t>(offset));
  }
}

TEST(StoredRoce, EachCaseOfTheSizesIsOneConnection) {
  const ReadCapture read("rxe_sizes");
  ASSERT_EQ(read.analysis.connections().size(), 11U);
  for (const Connection& connection : read.analysis.connections()) {
    EXPECT_EQ(connection.transport, Transport::rc);
    EXPECT_EQ(connection.end, Connection::End::closed);
    EXPECT_EQ(connection.beginning, Connection::Beginning::handshake);
    EXPECT_EQ(connection.mtu_bytes, 1024U);
    EXPECT_EQ(to_string(connection.a.address), "10.77.0.2");
    EXPECT_EQ(connection.a.number, 0x11U + connection.id);
    EXPECT_EQ(connection.b.number, 0x11U + connection.id);
  }
  expect_clean(read);
  EXPECT_EQ(read.analysis.infiniband().packets, 537U);
}

TEST(StoredRoce, SendsOfAllSizesHaveTheirChecksums) {
  const ReadCapture read("rxe_sizes");
  expect_messages(read.traffic.sends, 0, sent);
  expect_messages(read.traffic.sends, 3, std::span(sent).first(18));
  expect_messages(read.traffic.sends, 4, sent_inline);
  for (const auto& [key, message] : read.traffic.sends) {
    if (std::get<0>(key) == 3) {
      EXPECT_EQ(message.kind, SendKind::solicited);
    }
  }
}

TEST(StoredRoce, WritesOfAllSizesHaveTheirChecksumsAndLeaveTheTargetAsItWas) {
  const ReadCapture read("rxe_sizes");
  expect_messages(read.traffic.writes, 1, sent);
  Memory target = fresh_target();
  apply_writes(read, 1, 0x563e5d529000, target);
  EXPECT_EQ(adler(target), 0x69f285e3U);
}

TEST(StoredRoce, ReadsOfAllSizesHaveTheirChecksumsAndTheirSource) {
  const ReadCapture read("rxe_sizes");
  expect_messages(read.traffic.reads, 2, read_back);
  std::uint64_t address = 0x563e5d53b000;
  for (const auto& [key, message] : read.traffic.reads) {
    EXPECT_EQ(message.key, 0x623U);
    EXPECT_EQ(message.address, address++);
  }
}

TEST(StoredRoce, SendWithInvalidateNamesTheKey) {
  const ReadCapture read("rxe_sizes");
  expect_messages(read.traffic.sends, 5, std::array<Expected, 1>{{{100, 0x6078346b}}});
  for (const auto& [key, message] : read.traffic.sends) {
    if (std::get<0>(key) != 5) continue;
    EXPECT_EQ(message.kind, SendKind::invalidate);
    EXPECT_NE(message.invalidated_key, 0U);
  }
}

TEST(StoredRoce, ImmediatesAreNumbers) {
  const ReadCapture read("rxe_sizes");
  constexpr std::array<Expected, 4> with_immediate{
      {{0, 0x00000001}, {1500, 0x5e02eb65}, {3000, 0x5fecd668}, {4500, 0x6fc6c1fb}}};
  expect_messages(read.traffic.sends, 6, with_immediate);
  std::size_t seen = 0;
  for (const auto* messages : {&read.traffic.sends, &read.traffic.writes}) {
    for (const auto& [key, message] : *messages) {
      const ConnectionId connection = std::get<0>(key);
      EXPECT_EQ(message.has_immediate, connection == 6 || connection == 7);
      if (!message.has_immediate) continue;
      EXPECT_EQ(message.immediate, connection == 6 ? 0x11223344U : 0x55667788U);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 8U);
  Memory target = fresh_target();
  apply_writes(read, 7, 0x563e5d595000, target);
  EXPECT_EQ(adler(target), 0xc86088deU);
}

TEST(StoredRoce, AtomicsHaveTheirOperandsAndAnswers) {
  const ReadCapture read("rxe_sizes");
  constexpr std::array<std::uint64_t, 10> originals{
      0x1613100d0a070401, 0x171513110f0d0b09, 0x1817161514131212, 0x191919191919191c,
      0x1a1b1c1d1e1f2027, 0x1613100d0a070401, 0x1613100d0a070401, 0xa0a1a2a3a4a5a601,
      0xa0a1a2a3a4a5a601, 0xa0a1a2a3a4a5a603};
  EXPECT_EQ(read.traffic.atomic_answers,
            std::vector<std::uint64_t>(originals.begin(), originals.end()));
  ASSERT_EQ(read.traffic.atomic_requests.size(), 10U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(read.traffic.atomic_requests[i].kind, AtomicKind::fetch_add);
    EXPECT_EQ(read.traffic.atomic_requests[i].swap_or_add, 0x102030405060708U + i);
    EXPECT_EQ(read.traffic.atomic_requests[5 + i].kind, AtomicKind::compare_swap);
    EXPECT_EQ(read.traffic.atomic_requests[5 + i].swap_or_add, 0xa0a1a2a3a4a5a600U + i);
  }
  EXPECT_EQ(read.traffic.atomic_requests[8].compare, 0xa0a1a2a3a4a5a601U);
}

TEST(StoredRoce, RpingReadsAndWritesItsStrings) {
  const ReadCapture read("rxe_rping");
  ASSERT_EQ(read.analysis.connections().size(), 1U);
  EXPECT_EQ(read.connection(0).end, Connection::End::closed);
  EXPECT_EQ(read.operations.count(Operation::Kind::send), 20U);
  ASSERT_EQ(read.traffic.reads.size(), 5U);
  ASSERT_EQ(read.traffic.writes.size(), 5U);
  for (const auto* messages : {&read.traffic.reads, &read.traffic.writes}) {
    std::size_t ping = 0;
    for (const auto& [key, message] : *messages) {
      EXPECT_TRUE(message.whole());
      const std::string text(reinterpret_cast<const char*>(message.bytes.data()),
                             message.bytes.size());
      const std::string start = "rdma-ping-" + std::to_string(ping) + ": ";
      EXPECT_EQ(text.substr(0, start.size()), start);
      EXPECT_EQ(text[start.size()], static_cast<char>('A' + ping));
      ++ping;
    }
  }
  expect_clean(read);
}

struct PerfCase {
  ConnectionId connection;
  std::size_t count;
  std::size_t bytes;
};

void expect_bulk(const ReadCapture& read, Operation::Kind kind,
                 std::initializer_list<PerfCase> cases) {
  for (const PerfCase& perf : cases) {
    std::size_t count = 0;
    for (const Operation& operation : read.operations.operations) {
      if (operation.connection != perf.connection || operation.kind != kind) continue;
      EXPECT_EQ(operation.outcome, Operation::Outcome::complete);
      EXPECT_EQ(operation.bytes, perf.bytes);
      EXPECT_GE(operation.latency_ns(), 0);
      ++count;
    }
    EXPECT_EQ(count, perf.count) << perf.bytes;
  }
}

constexpr auto perf_cases = {PerfCase{0, 20, 64}, PerfCase{1, 20, 4096}, PerfCase{2, 8, 65536},
                             PerfCase{3, 5, 262144}, PerfCase{5, 20, 4096}};

TEST(StoredRoce, PerftestWritesAreCounted) {
  const ReadCapture read("rxe_perf_write");
  ASSERT_EQ(read.analysis.connections().size(), 6U);
  expect_bulk(read, Operation::Kind::write, perf_cases);
  expect_clean(read);
}

TEST(StoredRoce, PerftestReadsAreCounted) {
  const ReadCapture read("rxe_perf_read");
  ASSERT_EQ(read.analysis.connections().size(), 6U);
  expect_bulk(read, Operation::Kind::read, perf_cases);
  expect_clean(read);
}

TEST(StoredRoce, PerftestAtomicsAreCounted) {
  const ReadCapture read("rxe_perf_atomic");
  ASSERT_EQ(read.analysis.connections().size(), 4U);
  expect_bulk(read, Operation::Kind::fetch_add, {{0, 20, 8}, {3, 20, 8}});
  expect_bulk(read, Operation::Kind::compare_swap, {{1, 20, 8}});
  expect_clean(read);
}

// Go-back-N, duplicates and reads that are asked for again, in part.
TEST(StoredRoce, LossCostsRepeatsAndNothingElse) {
  const ReadCapture read("rxe_loss_in");
  ASSERT_EQ(read.analysis.connections().size(), 2U);
  expect_bulk(read, Operation::Kind::read, {{0, 16, 65536}});
  expect_bulk(read, Operation::Kind::write, {{1, 16, 65536}});
  EXPECT_EQ(read.traffic.repeated_requests, 53U);
  EXPECT_GT(read.traffic.repeated_bytes, 2'000'000U);
  for (const auto& [key, message] : read.traffic.reads) EXPECT_TRUE(message.whole());
  for (const auto& [key, message] : read.traffic.writes) EXPECT_TRUE(message.whole());
  expect_clean(read);
}

// No connection manager: the two directions are joined by what answers what, though all four pairs
// have the same numbers on both sides.
TEST(StoredRoce, SharedReceiveQueuePairsAreJoinedByTheirTraffic) {
  const ReadCapture read("rxe_srq");
  ASSERT_EQ(read.analysis.connections().size(), 4U);
  std::map<Side, std::size_t> sends;
  for (const Connection& connection : read.analysis.connections()) {
    EXPECT_EQ(connection.beginning, Connection::Beginning::traffic);
    EXPECT_TRUE(connection.a.known && connection.b.known);
    EXPECT_EQ(connection.a.number, 0x11U + connection.id);
    EXPECT_EQ(connection.b.number, 0x11U + connection.id);
  }
  for (const auto& [key, message] : read.traffic.sends) {
    EXPECT_TRUE(message.whole());
    EXPECT_EQ(message.bytes.size(), 4096U);
    ++sends[std::get<1>(key)];
  }
  // 50 iterations, and what was posted ahead of them.
  EXPECT_EQ(sends[Side::a], 53U);
  EXPECT_EQ(sends[Side::b], 53U);
  expect_clean(read);
}

TEST(StoredRoce, DatagramsAreCounted) {
  const ReadCapture read("rxe_ud_pingpong");
  ASSERT_EQ(read.analysis.connections().size(), 1U);
  EXPECT_EQ(read.connection(0).transport, Transport::ud);
  EXPECT_EQ(read.connection(0).a.number, 0x11U);
  EXPECT_EQ(read.traffic.sends.size(), 100U);
  for (const auto& [key, message] : read.traffic.sends) {
    EXPECT_TRUE(message.whole());
    EXPECT_EQ(message.bytes.size(), 1000U);
  }
  expect_clean(read);
}

// udaddy -c 2 -C 5 -S 500: SIDR names the queue pairs.
TEST(StoredRoce, DatagramsThroughTheConnectionManager) {
  const ReadCapture read("rxe_udaddy");
  ASSERT_EQ(read.analysis.connections().size(), 2U);
  for (const Connection& connection : read.analysis.connections()) {
    EXPECT_EQ(connection.transport, Transport::ud);
    EXPECT_EQ(connection.beginning, Connection::Beginning::handshake);
    EXPECT_EQ(connection.frames, 10U);
  }
  EXPECT_EQ(read.operations.count(Operation::Kind::send), 20U);
  for (const Operation& operation : read.operations.operations) EXPECT_EQ(operation.bytes, 500U);
  EXPECT_EQ(read.analysis.infiniband().management, 4U);
}

TEST(StoredRoce, NaksSayWhatWasRefused) {
  const ReadCapture read("rxe_errors");
  ASSERT_EQ(read.analysis.connections().size(), 9U);
  using Kind = Refusal::Kind;
  // Wrong rkey by write and read, out of bounds by both, no right by both; too long for the
  // receive.
  constexpr std::array<Kind, 7> fatal{
      Kind::access_error, Kind::access_error, Kind::access_error,     Kind::access_error,
      Kind::access_error, Kind::access_error, Kind::operational_error};
  ASSERT_EQ(read.traffic.refusals.size(), 11U);
  for (std::size_t i = 0; i < fatal.size(); ++i) {
    EXPECT_EQ(read.traffic.refusals[i].kind, fatal[i]) << i;
    EXPECT_EQ(read.connection(static_cast<ConnectionId>(i)).end, Connection::End::terminated);
  }
  // No receive was posted: after each RNR NAK what was sent behind is refused for its PSN.
  for (std::size_t i = fatal.size(); i < read.traffic.refusals.size(); ++i) {
    const Refusal& refusal = read.traffic.refusals[i];
    if (refusal.kind == Kind::sequence_error) continue;
    EXPECT_EQ(refusal.kind, Kind::receiver_not_ready);
    EXPECT_EQ(refusal.timer_ns, 655'360'000U);
  }
  EXPECT_EQ(read.connection(7).end, Connection::End::closed);
}

TEST(StoredRoce, RefusedOperationsAreMarked) {
  const ReadCapture read("rxe_errors");
  std::map<Operation::Kind, std::size_t> refused;
  for (const Operation& operation : read.operations.operations) {
    if (operation.outcome == Operation::Outcome::refused) ++refused[operation.kind];
  }
  EXPECT_EQ(refused[Operation::Kind::write], 3U);
  EXPECT_EQ(refused[Operation::Kind::read], 3U);
  // One was too long, the other's receiver was never ready.
  EXPECT_EQ(refused[Operation::Kind::send], 2U);
}

}  // namespace
}  // namespace weft::capture::test
