// TCP's bytes become segments, however they are cut: RFC 5044 §4, §6.
#include "iwarp/deframer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/fpdu.h"
#include "support/pump.h"
#include "support/random.h"
#include "support/scripted_peer.h"

namespace weft::test {
namespace {

using iwarp::Deframer;

constexpr std::size_t large = 50'000;  // placed directly; what fits the staging buffer is not

// A stream of Writes and Sends of all sizes, and the contents of memory that it must lead to.
struct Stream {
  Content bytes;
  Content written;
  Content received;
  std::size_t messages = 0;
};

Stream mixed_stream(const Region& target, bool crc, std::span<const std::size_t> sizes) {
  Stream stream;
  std::uint32_t msn = 1;
  for (const std::size_t size : sizes) {
    const auto content = pattern(size, size + 1);
    const auto at = target.address(stream.written.size());
    stream.bytes = joined(stream.bytes, fpdu(write(target.rkey(), at, content), crc));
    stream.bytes = joined(stream.bytes, fpdu(send(msn++, content), crc));
    stream.bytes =
        joined(stream.bytes, fpdu(empty_read(static_cast<std::uint32_t>(++stream.messages)), crc));
    stream.written = joined(stream.written, content);
    stream.received = joined(stream.received, content);
  }
  return stream;
}

constexpr std::size_t all_sizes[] = {0,      1,     2,      3,      4,      5,      63,
                                     64,     65,    1428,   16'350, 16'360, 16'370, 16'380,
                                     16'384, large, 65'517, 7,      large,  large,  3};

struct Case {
  bool crc;
  bool strict;
};

class Chunks : public testing::TestWithParam<Case> {
 protected:
  // Feeds the stream in pieces of sizes from `next_size`, and checks what arrived.
  template <typename NextSize>
  void check(NextSize next_size, std::span<const std::size_t> sizes = all_sizes) {
    auto options = roomy(false);
    options.crc = GetParam().crc;
    options.strict_crc = GetParam().strict;
    options.ird = 100;
    ScriptedPeer peer(options);
    std::size_t total = 0;
    for (const auto size : sizes) total += size;
    Region& target = peer.host.add(total);
    Region& sink = peer.host.add(total);
    std::size_t at = 0;
    for (const auto size : sizes) {
      peer.host.post_receive(
          at, {sink.slice(at, size / 3), sink.slice(at + size / 3, size - size / 3)});
      at += size;
    }
    const auto stream = mixed_stream(target, options.crc, sizes);
    Bytes rest = stream.bytes;
    while (!rest.empty()) {
      const auto part = rest.first(std::min(rest.size(), std::max<std::size_t>(next_size(), 1)));
      ASSERT_EQ(feed(peer.connection, part), part.size())
          << describe(peer.connection.terminate().code);
      rest = rest.subspan(part.size());
    }
    EXPECT_FALSE(peer.connection.mid_fpdu());
    EXPECT_TRUE(target.copy() == stream.written);
    EXPECT_TRUE(sink.copy() == stream.received);
    ASSERT_EQ(peer.host.receives.size(), sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(peer.host.receives[i].length_bytes, sizes[i]);
    }
    for (std::size_t i = 0; i < stream.messages; ++i) peer.expect(empty_response());
    peer.expect_nothing();
  }
};

TEST_P(Chunks, OfOneSize) {
  for (const std::size_t size : {2U, 3U, 7U, 64U, 100U, 1000U, 1460U, 4096U, 16'384U, 65'536U}) {
    SCOPED_TRACE(size);
    check([size] { return size; });
  }
}

TEST_P(Chunks, ByteByByte) {
  check([] { return 1; });
}

TEST_P(Chunks, AllAtOnce) {
  check([] { return SIZE_MAX; });
}

TEST_P(Chunks, OfRandomSizes) {
  for (const auto seed : seeds(30)) {
    SCOPED_TRACE(seed_trace(seed));
    Random random(seed);
    const std::size_t most = std::size_t{1} << random.between(1, 17);
    std::vector<std::size_t> sizes;
    for (int i = 0; i < 20; ++i)
      sizes.push_back(random.below(std::uint64_t{1} << random.between(1, 16)));
    for (auto& size : sizes) size = std::min<std::size_t>(size, 65'517);
    check([&] { return random.between(1, most); }, sizes);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Chunks,
                         testing::Values(Case{true, false}, Case{false, false}, Case{true, true}),
                         [](const auto& given) {
                           return std::string(given.param.crc ? "crc" : "plain") +
                                  (given.param.strict ? "_strict" : "");
                         });

// --- CRC -----------------------------------------------------------------------------------------

class Corrupted : public testing::TestWithParam<std::tuple<std::size_t, bool>> {
 protected:
  [[nodiscard]] iwarp::Connection::Options options() const {
    auto made = roomy(false);
    made.strict_crc = std::get<1>(GetParam());
    return made;
  }
  [[nodiscard]] std::size_t size() const { return std::get<0>(GetParam()); }
  // Offsets of an FPDU at which a change must be found: a few in every field, and in the payload.
  static std::vector<std::size_t> offsets(std::size_t fpdu_bytes) {
    std::vector<std::size_t> all;
    for (std::size_t i = 2; i < std::min<std::size_t>(fpdu_bytes, 24); ++i) all.push_back(i);
    for (std::size_t i = 24; i < fpdu_bytes; i += fpdu_bytes / 50 + 1) all.push_back(i);
    for (std::size_t i = 1; i <= 8; ++i) all.push_back(fpdu_bytes - i);
    return all;
  }
};

// RFC 5044 §4.4, §8: an FPDU with a wrong CRC is not delivered, and the stream ends.
TEST_P(Corrupted, SendIsNotDelivered) {
  const auto good = fpdu(send(1, pattern(size())));
  for (const std::size_t offset : offsets(good.size())) {
    SCOPED_TRACE(offset);
    auto bad = good;
    bad[offset] ^= std::byte{0x42};  // in the first two bytes, also the versions
    ScriptedPeer peer(options());
    Region& memory = peer.host.add(size());
    peer.host.post_receive(1, {memory.slice()});
    peer.send_raw(bad);
    EXPECT_TRUE(peer.connection.ended());
    EXPECT_EQ(peer.host.ready_calls, 0);
    for (const auto& completion : peer.host.receives) {
      EXPECT_NE(completion.status, iwarp::Status::success);
    }
    // The header of a large FPDU is used before its CRC has arrived.
    if (size() < 1000 || std::get<1>(GetParam()) || offset >= 20) {
      peer.expect_terminate(terminate(wire::terminate::mpa_crc));
      EXPECT_EQ(peer.host.posted_receives.size() + peer.host.receives.size(), 1U);
    }
  }
}

// The last bytes of a Write, which programs poll, are not placed before the CRC is checked.
TEST_P(Corrupted, WriteNeverShowsItsLastBytes) {
  for (const bool crc_itself : {false, true}) {
    ScriptedPeer peer(options());
    Region& memory = peer.host.add(size());
    auto bad = fpdu(write(memory.rkey(), memory.address(), pattern(size())));
    bad[crc_itself ? bad.size() - 1 : 20] ^= std::byte{1};
    peer.send_raw(bad);
    peer.expect_terminate(terminate(wire::terminate::mpa_crc));
    const std::size_t tail = std::min(size(), Deframer::held_back_bytes);
    EXPECT_EQ(memory.copy(size() - tail, tail), Content(tail));
    const bool staged = size() < 10'000 || std::get<1>(GetParam());
    EXPECT_TRUE(!staged || memory.copy() == Content(size()));
  }
}

TEST_P(Corrupted, ReadRequestIsNotAnswered) {
  auto bad = fpdu(empty_read(1));
  bad.back() ^= std::byte{1};
  ScriptedPeer peer(options());
  peer.send_raw(bad);
  peer.expect_terminate(terminate(wire::terminate::mpa_crc));
}

TEST_P(Corrupted, TerminateIsNotBelieved) {
  auto bad = fpdu(terminate(wire::terminate::rdma_unspecified));
  bad[24] ^= std::byte{1};
  ScriptedPeer peer(options());
  peer.send_raw(bad);
  peer.expect_terminate(terminate(wire::terminate::mpa_crc));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Corrupted,
                         testing::Combine(testing::Values(100, large), testing::Bool()));

// RFC 5044 §4.4: where neither side uses CRCs, the field may have any value.
TEST(Deframer, CrcThatIsOffIsNotLookedAt) {
  for (const std::size_t size : {std::size_t{10}, std::size_t{large}}) {
    auto options = roomy(false);
    options.crc = false;
    ScriptedPeer peer(options);
    Region& memory = peer.host.add(size);
    auto bytes = fpdu(write(memory.rkey(), memory.address(), pattern(size)), false);
    bytes.back() = std::byte{0x99};
    peer.send_raw(bytes);
    EXPECT_TRUE(memory.copy() == pattern(size));
  }
}

// RFC 5044 §4.1: the pad is covered by the CRC and means nothing.
TEST(Deframer, PadMayHoldAnything) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(1);
  auto bytes = fpdu(write(memory.rkey(), memory.address(), text("x")));
  bytes[bytes.size() - 5] = std::byte{0x77};
  const auto covered = Bytes(bytes).first(bytes.size() - 4);
  store_le(&bytes[bytes.size() - 4], crc32c(covered));
  peer.send_raw(bytes);
  EXPECT_EQ(memory.copy(), text("x"));
}

// --- Where bytes go ------------------------------------------------------------------------------

std::vector<iovec> planned(iwarp::Connection& connection) {
  std::vector<iovec> plan;
  connection.plan_receive(plan);
  return plan;
}

// A large payload is read into its target, without a copy; so is that of the next FPDU.
TEST(Deframer, LargePayloadGoesStraightToItsPlace) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(2 * large);
  const auto first = fpdu(write(memory.rkey(), memory.address(), pattern(large), false));
  const auto second = fpdu(write(memory.rkey(), memory.address(large), pattern(large)));
  peer.send_raw(Bytes(first).first(1000));
  auto plan = planned(peer.connection);
  ASSERT_EQ(plan.size(), 2U);
  EXPECT_EQ(plan[0].iov_base, &memory.bytes()[1000 - 16]);
  EXPECT_EQ(plan[0].iov_len, large - 984 - Deframer::held_back_bytes);

  peer.send_raw(Bytes(first).subspan(1000));
  plan = planned(peer.connection);
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_LE(plan[0].iov_len, 1024U) << "a read far beyond the header takes payload with it";
  peer.send_raw(Bytes(second).first(20));
  plan = planned(peer.connection);
  ASSERT_EQ(plan.size(), 2U);
  EXPECT_EQ(plan[0].iov_base, &memory.bytes()[large + 4]);
  peer.send_raw(Bytes(second).subspan(20));
  EXPECT_TRUE(memory.copy(0, large) == pattern(large));
  EXPECT_TRUE(memory.copy(large, large) == pattern(large));
}

// The short end of a message, and what comes before the next one, need no read of their own.
TEST(Deframer, TheEndOfALargeMessageComesWithWhatIsBeforeIt) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(large + 700);
  const auto first = fpdu(write(memory.rkey(), memory.address(), pattern(large), false));
  const auto end = fpdu(write(memory.rkey(), memory.address(large), pattern(700)));
  peer.send_raw(Bytes(first).first(1000));
  const auto plan = planned(peer.connection);
  EXPECT_EQ(plan.size(), 2U);
  EXPECT_GE(plan[0].iov_len + plan[1].iov_len, first.size() - 1000 + end.size() + 20);
  peer.send_raw(joined(Bytes(first).subspan(1000), end));
  EXPECT_TRUE(memory.copy(large, 700) == pattern(700));
}

// A plan stays the same until bytes arrive: a device may plan again after a read that found
// nothing.
TEST(Deframer, PlanMayBeAskedForAgain) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(large);
  const auto bytes = fpdu(write(memory.rkey(), memory.address(), pattern(large)));
  for (std::size_t at = 0; at < bytes.size(); at += 777) {
    const auto first = planned(peer.connection);
    const auto again = planned(peer.connection);
    ASSERT_EQ(first.size(), again.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i].iov_base, again[i].iov_base);
      EXPECT_EQ(first[i].iov_len, again[i].iov_len);
    }
    peer.connection.received(0);
    peer.send_raw(Bytes(bytes).subspan(at, std::min<std::size_t>(777, bytes.size() - at)));
  }
  EXPECT_TRUE(memory.copy() == pattern(large));
}

// The buffer goes back to the pool between any two reads, unless it has a part of an FPDU.
TEST(Deframer, MayRestAfterEachRead) {
  for (const bool strict : {false, true}) {
    auto options = roomy(false);
    options.strict_crc = strict;
    ScriptedPeer peer(options);
    Region& memory = peer.host.add(3 * large);
    Content bytes;
    for (const std::size_t at : {std::size_t{0}, large, 2 * large}) {
      bytes = joined(bytes, fpdu(write(memory.rkey(), memory.address(at), pattern(large))));
    }
    for (std::size_t at = 0; at < bytes.size(); at += 777) {
      peer.send_raw(Bytes(bytes).subspan(at, std::min<std::size_t>(777, bytes.size() - at)));
      peer.connection.rest();
      (void)planned(peer.connection);
      peer.connection.rest();
    }
    for (const std::size_t at : {std::size_t{0}, large, 2 * large}) {
      EXPECT_TRUE(memory.copy(at, large) == pattern(large));
    }
  }
}

// A program that polls the last byte sees it when the whole FPDU is known to be intact.
TEST(Deframer, LastBytesWaitForTheCrc) {
  ScriptedPeer peer(roomy(false));
  Region& memory = peer.host.add(large);
  const auto bytes = fpdu(write(memory.rkey(), memory.address(), pattern(large)));
  peer.send_raw(Bytes(bytes).first(bytes.size() - 1));
  EXPECT_EQ(memory.copy(large - Deframer::held_back_bytes, Deframer::held_back_bytes),
            Content(Deframer::held_back_bytes));
  EXPECT_EQ(memory.copy(0, 1000), Content(pattern(1000)));
  peer.send_raw(Bytes(bytes).last(1));
  EXPECT_TRUE(memory.copy() == pattern(large));
}

TEST(Deframer, StrictModePlacesNothingEarly) {
  auto options = roomy(false);
  options.strict_crc = true;
  ScriptedPeer peer(options);
  Region& memory = peer.host.add(large);
  const auto bytes = fpdu(write(memory.rkey(), memory.address(), pattern(large)));
  peer.send_raw(Bytes(bytes).first(bytes.size() - 1));
  EXPECT_TRUE(memory.copy() == Content(large));
  peer.send_raw(Bytes(bytes).last(1));
  EXPECT_TRUE(memory.copy() == pattern(large));
}

}  // namespace
}  // namespace weft::test
