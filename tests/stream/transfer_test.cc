// Transfer of bytes, in both variants.
#include <poll.h>

#include <algorithm>
#include <array>
#include <future>
#include <thread>

#include "stream/sides.h"
#include "support/device.h"

namespace weft::stream {
namespace {

// Returns how many bytes the buffers of both sides take while nothing is received.
std::size_t send_until_refused(Stream& stream, std::span<const std::byte> bytes) {
  std::size_t done = 0;
  for (Transfer sent; sent.ok();) {
    sent = stream.send(bytes.subspan(done), Deadline::now());
    done += sent.bytes;
  }
  return done;
}

class Transfer : public BothVariants {};
WEFT_BOTH_VARIANTS(Transfer);

TEST_P(Transfer, AGreetingGoesThereAndBack) {
  Sides sides(options());
  EXPECT_EQ(sides.active.variant(), GetParam());
  EXPECT_EQ(sides.passive->variant(), GetParam());
  ASSERT_TRUE(sides.passive->send(bytes_of("hello stream!"), test_timeout).ok());
  const auto heard = receive_all(sides.active, 13);
  EXPECT_EQ(text_of(heard), "hello stream!");
  ASSERT_TRUE(sides.active.send(heard, test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(*sides.passive, 13)), "hello stream!");
}

TEST_P(Transfer, AwkwardSizesArriveWhole) {
  Sides sides(options());
  for (const std::size_t size : {1U, 2U, 32'767U, 32'768U, 32'769U, 1'048'577U}) {
    const auto bytes = test::pattern(size, size);
    auto got = std::async(std::launch::async, [&] { return receive_all(*sides.passive, size); });
    const auto sent = sides.active.send(bytes, test_timeout);
    ASSERT_TRUE(sent.ok());
    EXPECT_EQ(sent.bytes, size);
    EXPECT_EQ(got.get(), bytes) << size;
  }
}

TEST_P(Transfer, ListsAreSentAndReceivedAsOneRowOfBytes) {
  Sides sides(options());
  const auto bytes = test::pattern(100'000);
  const std::span all(bytes);
  const std::array pieces{all.first(1), all.subspan(1, 0), all.subspan(1, 40'000),
                          all.subspan(40'001)};
  auto sent =
      std::async(std::launch::async, [&] { return sides.active.send(pieces, test_timeout); });
  std::vector<std::byte> got(100'000);
  const std::span room(got);
  const std::array into{room.first(70'000), room.subspan(70'000, 3), room.subspan(70'003)};
  EXPECT_EQ(sides.passive->receive(into, test_timeout, {.wait_all = true}).bytes, 100'000U);
  EXPECT_EQ(sent.get().bytes, 100'000U);
  EXPECT_EQ(got, bytes);
}

TEST_P(Transfer, BothDirectionsAtOnce) {
  Sides sides(options());
  const auto one = test::pattern(3'000'000, 1);
  const auto other = test::pattern(3'000'000, 2);
  auto there = std::async(std::launch::async, [&] { return sides.active.send(one, test_timeout); });
  auto back =
      std::async(std::launch::async, [&] { return sides.passive->send(other, test_timeout); });
  auto got = std::async(std::launch::async, [&] { return receive_all(sides.active, 3'000'000); });
  EXPECT_EQ(receive_all(*sides.passive, 3'000'000), one);
  EXPECT_EQ(got.get(), other);
  EXPECT_TRUE(there.get().ok());
  EXPECT_TRUE(back.get().ok());
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t mebibytes = 8;  // each takes ten times as long
#else
constexpr std::size_t mebibytes = 64;
#endif

// The sender never waits in a call; the reader sleeps again and again.
TEST_P(Transfer, SixtyFourMebibytesReachASlowReader) {
  const std::size_t total = test::turns(mebibytes, 4) * 1024 * 1024;
  constexpr std::size_t ring = 32 * 1024;
  Options wanted = options();
  wanted.growth_bytes = 0;
  Sides sides(wanted);
  auto reader = std::async(std::launch::async, [&] {
    std::vector<std::byte> got;
    got.reserve(total);
    std::vector<std::byte> some(ring);
    for (int reads = 1; got.size() < total; ++reads) {
      const auto outcome = sides.passive->receive(some, test_timeout);
      if (!outcome.ok()) break;
      got.insert(got.end(), some.begin(), some.begin() + static_cast<long>(outcome.bytes));
      if (reads % 64 == 0) std::this_thread::sleep_for(100us);
    }
    return got;
  });
  const auto bytes = test::pattern(total);
  std::size_t refused = 0;
  for (std::size_t done = 0; done < total;) {
    const auto outcome = sides.active.send(std::span(bytes).subspan(done), Deadline::now());
    ASSERT_NE(outcome.status, TransferStatus::failed) << outcome.error_number;
    done += outcome.bytes;
    if (!outcome.would_block()) continue;
    ++refused;
    pollfd entry{sides.active.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 60'000), 1);
  }
  EXPECT_TRUE(reader.get() == bytes);
  EXPECT_GT(refused, 0U);
  const auto of_sender = sides.active.statistics();
  const auto of_reader = sides.passive->statistics();
  EXPECT_EQ(of_sender.bytes_sent, total);
  EXPECT_EQ(of_sender.refused_sends, refused);
  EXPECT_EQ(of_reader.data_messages_received, of_sender.data_messages_sent);
  // Messages between processes of one host announce that data come without messages, and wake.
  if (of_sender.placed_bytes_sent > 0) return;
  EXPECT_GE(of_reader.updates_sent, total / ring - 1);
  EXPECT_LE(of_reader.updates_sent,
            total / (ring / 2) + of_reader.data_messages_received / (384 / 2));
}

// Nothing is read before the sender is refused, so that each ring has grown to its full size. On a
// device of the system none grows.
TEST_P(Transfer, BuffersGrowWhileTheReaderPauses) {
  Options wanted = options();
  wanted.growth_bytes = 200'000;
  Sides sides(wanted);
  const auto bytes = test::pattern(3'000'000);
  const std::size_t done = send_until_refused(sides.active, bytes);
  const bool grows = test::open_device().backend() == verbs::Backend::embedded;
  EXPECT_EQ(done, grows ? 200'000U : wanted.receive_buffer_bytes);
  auto reader = std::async(std::launch::async, [&] {
    std::vector<std::byte> got(bytes.size());
    const auto outcome = sides.passive->receive(got, test_timeout, {.wait_all = true});
    EXPECT_EQ(outcome.bytes, bytes.size());
    return got;
  });
  EXPECT_TRUE(sides.active.send(std::span(bytes).subspan(done), test_timeout).ok());
  EXPECT_TRUE(reader.get() == bytes);
}

TEST_P(Transfer, ABufferOfWhichTheSizeWasAskedForKeepsIt) {
  for (const bool asked_by_limit : {false, true}) {
    Options wanted = options();
    if (asked_by_limit) {
      wanted.growth_bytes = 0;
    } else {
      wanted.receive_buffer_bytes = 20'000;
    }
    Sides sides(wanted);
    const auto bytes = test::pattern(100'000);
    EXPECT_EQ(send_until_refused(sides.active, bytes), wanted.receive_buffer_bytes);
  }
}

TEST_P(Transfer, EverySizeOfRingAndQueueWorks) {
  for (const std::uint32_t ring : {1U, 2U, 7U, 4095U, 100'000U, 4U * 1024 * 1024}) {
    for (const std::uint32_t queue : {2U, 3U, 4U, 384U, 16'000U}) {
      if (queue > 384 && ring > 4095) continue;
      Options wanted = options();
      wanted.send_buffer_bytes = wanted.receive_buffer_bytes = ring;
      wanted.send_queue = wanted.receive_queue = queue;
      Sides sides(wanted);
      const std::size_t size = ring < 100 ? 300 : std::size_t{2} * ring + 1;
      const auto bytes = test::pattern(size);
      auto sent =
          std::async(std::launch::async, [&] { return sides.active.send(bytes, test_timeout); });
      ASSERT_EQ(receive_all(*sides.passive, size), bytes) << ring << ", " << queue;
      ASSERT_TRUE(sent.get().ok());
      // The other direction, with half as many bytes.
      const std::span half = std::span(bytes).first(size / 2);
      auto back =
          std::async(std::launch::async, [&] { return sides.passive->send(half, test_timeout); });
      const auto got = receive_all(sides.active, half.size());
      ASSERT_TRUE(std::ranges::equal(got, half)) << ring << ", " << queue;
      ASSERT_TRUE(back.get().ok());
    }
  }
}

TEST_P(Transfer, RegisteredMemoryIsSentWithoutACopy) {
  Sides sides(options());
  const auto region = sides.active.domain().allocate<std::byte>(1'000'001);
  const auto bytes = test::pattern(region.size());
  std::ranges::copy(bytes, region.elements().begin());
  auto got = std::async(std::launch::async, [&] { return receive_all(*sides.passive, 1'000'001); });
  const auto sent = sides.active.send_registered(region.slice(), test_timeout);
  EXPECT_EQ(sent.bytes, region.size());
  std::ranges::fill(region.elements(), std::byte{0});  // the memory may be used again
  EXPECT_EQ(got.get(), bytes);
}

TEST_P(Transfer, PeekingLeavesTheBytes) {
  Sides sides(options());
  EXPECT_TRUE(sides.passive->peek_receive().would_block());
  EXPECT_TRUE(sides.active.peek_send().ok());
  ASSERT_TRUE(sides.active.send(bytes_of("twice"), test_timeout).ok());
  std::vector<std::byte> got(5);
  ASSERT_EQ(sides.passive->receive(got, test_timeout, {.peek = true, .wait_all = true}).bytes, 5U);
  EXPECT_EQ(text_of(got), "twice");
  EXPECT_TRUE(sides.passive->peek_receive().ok());
  EXPECT_EQ(sides.passive->bytes_available(), 5U);
  EXPECT_EQ(text_of(receive_all(*sides.passive, 5)), "twice");
  EXPECT_EQ(sides.passive->bytes_available(), 0U);
  EXPECT_TRUE(sides.passive->peek_receive().would_block());
}

TEST_P(Transfer, PeekingAroundTheEndOfTheRing) {
  Options wanted = options();
  wanted.receive_buffer_bytes = 10;
  Sides sides(wanted);
  ASSERT_TRUE(sides.active.send(bytes_of("1234567"), test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(*sides.passive, 7)), "1234567");
  ASSERT_TRUE(sides.active.send(bytes_of("abcdef"), test_timeout).ok());
  std::vector<std::byte> got(6);
  ASSERT_EQ(sides.passive->receive(got, test_timeout, {.peek = true, .wait_all = true}).bytes, 6U);
  EXPECT_EQ(text_of(got), "abcdef");
}

TEST_P(Transfer, WithoutWaitingOnlyWhatFitsIsTaken) {
  Options wanted = options();
  wanted.send_buffer_bytes = wanted.receive_buffer_bytes = 1000;
  Sides sides(wanted);
  std::vector<std::byte> none(10);
  EXPECT_TRUE(sides.passive->receive(none, Deadline::now()).would_block());
  const auto bytes = test::pattern(5000);
  const auto first = sides.active.send(bytes, Deadline::now());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first.bytes, 1000U);
  EXPECT_TRUE(sides.active.send(bytes, Deadline::now()).would_block());
  EXPECT_TRUE(sides.active.peek_send().would_block());
  EXPECT_TRUE(sides.active.send(bytes, Deadline(1ms)).would_block());
  std::vector<std::byte> got(1000);
  EXPECT_EQ(sides.passive->receive(got, test_timeout, {.wait_all = true}).bytes, 1000U);
  EXPECT_EQ(sides.active.send(std::span(bytes).first(500), test_timeout).bytes, 500U);
}

// --- Mapped buffers ------------------------------------------------------------------------------

TEST_P(Transfer, MappedBuffersAreWrittenByThePeer) {
  Options wanted = options();
  wanted.mapped_buffers = 2;
  Sides sides(wanted);
  std::vector<std::byte> one(50'000);
  std::vector<std::byte> two(100);
  std::vector<std::byte> three(1);
  EXPECT_EQ(sides.passive->map_buffer(one, -1), 0);
  EXPECT_EQ(sides.passive->map_buffer(two, 1'000'000), 1'000'000);
  EXPECT_THROW((void)sides.passive->map_buffer(three, -1), Error);  // the peer has two rows
  ASSERT_TRUE(sides.passive->send(bytes_of("!"), test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(sides.active, 1)), "!");

  const auto bytes = test::pattern(40'000);
  EXPECT_EQ(sides.active.write_mapped(bytes, 10'000, test_timeout).bytes, 40'000U);
  EXPECT_EQ(sides.active.write_mapped(bytes_of("tail"), 1'000'096, test_timeout).bytes, 4U);
  EXPECT_EQ(sides.active.write_mapped(bytes_of("tail"), 1'000'097, test_timeout).error_number,
            EFAULT);
  EXPECT_EQ(sides.active.write_mapped(bytes_of("x"), 60'000, test_timeout).error_number, EFAULT);
  ASSERT_TRUE(sides.active.send(bytes_of("?"), test_timeout).ok());  // behind what was written
  EXPECT_EQ(text_of(receive_all(*sides.passive, 1)), "?");
  EXPECT_TRUE(std::ranges::equal(std::span(one).subspan(10'000), bytes));
  EXPECT_EQ(text_of(std::span(two).last(4)), "tail");

  sides.passive->unmap_buffer(one);
  ASSERT_TRUE(sides.passive->send(bytes_of("!"), test_timeout).ok());
  EXPECT_EQ(text_of(receive_all(sides.active, 1)), "!");
  EXPECT_EQ(sides.active.write_mapped(bytes, 10'000, test_timeout).error_number, EFAULT);
  EXPECT_EQ(sides.passive->map_buffer(three, 5), 5);  // its row is free again
}

std::optional<int> try_to_map(Stream& stream, std::span<std::byte> memory) {
  try {
    return stream.map_buffer(memory, -1, Deadline::now());
  } catch (const Error&) {
    return std::nullopt;
  }
}

TEST_P(Transfer, AMappingThatCouldNotBeSentLeavesItsRowFree) {
  Options wanted = options();
  wanted.mapped_buffers = 1;
  wanted.receive_queue = min_queue;
  Sides sides(wanted);
  std::vector<std::byte> memory(100);
  std::size_t sent = 0;
  while (true) {
    // Until the peer has no receive for another message, which it may have again a moment later.
    while (sides.active.send(bytes_of("x"), Deadline::now()).ok()) ++sent;
    if (sides.active.statistics().placed_bytes_sent > 0) {
      GTEST_SKIP() << "data take no receives between processes of one host";
    }
    if (!try_to_map(sides.active, memory)) break;
    // The message about the end of the mapping needs a receive as well.
    EXPECT_EQ(text_of(receive_all(*sides.passive, sent)), std::string(sent, 'x'));
    sent = 0;
    sides.active.unmap_buffer(memory);
  }
  EXPECT_EQ(text_of(receive_all(*sides.passive, sent)), std::string(sent, 'x'));
  // Messages about mappings take receives as well, and the calls of the peer's program give them
  // back.
  std::optional<int> row;
  for (const Deadline end = test_timeout; !row && !end.passed();) {
    std::array<std::byte, 1> none{};
    EXPECT_EQ(sides.passive->receive(none, Deadline::now()).bytes, 0U);
    row = try_to_map(sides.active, memory);
  }
  EXPECT_EQ(row, 0);
}

// A completion costs an answer of the peer.
TEST(StreamReports, FewMessagesReportThatTheyAreComplete) {
  constexpr std::size_t count = 20'000;
  constexpr std::size_t size = 64;
  Sides sides;
  if (sides.active.id().context().backend() != verbs::Backend::embedded) {
    GTEST_SKIP() << "rdma-core's devices count no completions";
  }
  const auto bytes = test::pattern(count * size, 1);
  auto got =
      std::async(std::launch::async, [&] { return receive_all(*sides.passive, count * size); });
  for (std::size_t i = 0; i < count; ++i) {
    const auto piece = std::span(bytes).subspan(i * size, size);
    ASSERT_EQ(sides.active.send(piece, test_timeout).bytes, size);
  }
  EXPECT_EQ(got.get(), bytes);
  if (sides.active.statistics().placed_bytes_sent > 0) {
    GTEST_SKIP() << "the ends share memory";
  }
  const auto reported = sides.active.id().context().counters().queue_pairs.send_completions;
  // Beside other work the sender waits for room more often, which takes a report each time.
  EXPECT_LT(reported[IBV_WC_SUCCESS], count / 3);
}

}  // namespace
}  // namespace weft::stream
