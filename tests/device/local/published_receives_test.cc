// A sender copies the receives that its peer has published for several messages at a time, and a
// program that polls takes completions past the ring of its queue.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "device/local/same_host_test.h"
#include "device/pair_fixture.h"

namespace weft::device {
namespace {

constexpr std::uint32_t size = 64;

class PublishedReceives : public SameHostTest {
 protected:
  static PairOptions few() {
    PairOptions options;
    options.ends.receive_requests = 4;
    options.hold_bytes = 1 << 16;
    options.weft_peers = true;
    return options;
  }
};

// The places for receives are used again, in pieces of other sizes than those that were copied.
TEST_F(PublishedReceives, EachMessageUsesTheNextOne) {
  Pair pair(few());
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(16 * size);
  std::uint64_t posted = 0;
  const auto post = [&] {
    const std::uint64_t place = posted % 16;
    ASSERT_EQ(pair.b.post_receive(posted++, {target->sge(place * size, 1 + place)}), 0);
  };
  for (int i = 0; i < 3; ++i) post();
  for (std::uint64_t number = 0; number < 100; ++number) {
    const auto length = static_cast<std::uint32_t>(1 + number % 16);
    source->fill(static_cast<std::uint8_t>(number));
    ASSERT_EQ(pair.a.send(number, {source->sge(0, length)}), 0);
    const ibv_wc received = pair.b.await();
    ASSERT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.wr_id, number);
    EXPECT_EQ(received.byte_len, length);
    EXPECT_EQ(target->bytes()[(number % 16) * size], source->bytes()[0]);
    expect_success(pair.a, number);
    post();
  }
}

// As over TCP, although the sender knows the region from the message before.
TEST_F(PublishedReceives, OnesThatAreDeregisteredAreRefused) {
  Pair pair(few());
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  ASSERT_EQ(pair.b.post_receive(1, {target->sge(0, size)}), 0);
  ASSERT_EQ(pair.b.post_receive(2, {target->sge(0, size)}), 0);
  ASSERT_EQ(pair.a.send(1, {source->sge(0, size)}), 0);
  expect_success(pair.b, 1);
  expect_success(pair.a, 1);
  target->deregister();
  ASSERT_EQ(pair.a.send(2, {source->sge(0, size)}), 0);
  EXPECT_EQ(pair.b.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.a.await().status, IBV_WC_REM_OP_ERR);
}

// Messages are there before the first poll, whose array is smaller. What does not fit goes through
// the ring of the queue, and everything is counted once.
TEST_F(PublishedReceives, ArePolledInOrderWhateverTheArray) {
  PairOptions options = few();
  options.ends.receive_requests = 64;
  Pair pair(options);
  const auto source = pair.a.buffer(size);
  const auto target = pair.b.buffer(size);
  exchange_one(pair, *source, *target);
  constexpr std::uint64_t messages = 50;
  for (std::uint64_t i = 0; i < messages; ++i) {
    ASSERT_EQ(pair.b.post_receive(i, {target->sge(0, size)}), 0);
    ASSERT_EQ(pair.a.send(i, {source->sge(0, size)}), 0);
    expect_success(pair.a, i);
  }
  std::uint64_t next = 0;
  for (int room = 1; next < messages; room = room % 7 + 1) {
    std::array<ibv_wc, 7> polled{};
    const int count = pair.b.queue.poll(room, polled.data());
    ASSERT_GE(count, 0);
    ASSERT_LE(count, room);
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(polled.at(static_cast<std::size_t>(i)).wr_id, next++);
      EXPECT_EQ(polled.at(static_cast<std::size_t>(i)).status, IBV_WC_SUCCESS);
    }
  }
  const CompletionQueueCounters counted = pair.b.queue.counters();
  EXPECT_EQ(counted.polled, messages + 1);
  EXPECT_EQ(counted.completions[IBV_WC_SUCCESS], messages + 1);
}

}  // namespace
}  // namespace weft::device
