// A sender copies the receives that its peer has published for several messages at a time, and a
// program that polls takes completions past the ring of its queue.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/receive_place.h"
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

class PlacedElsewhere : public PublishedReceives {
 protected:
  static constexpr std::uint32_t longest = 4096;

  void SetUp() override {
    PublishedReceives::SetUp();
    pair_.emplace(polled_only());
    source_ = pair_->a.buffer(2 * longest);
    target_ = pair_->b.buffer(4 * longest);
    exchange_one(*pair_, *source_, *target_);
    set(*target_, 0);
  }
  // No progress thread takes a message before the poll does, which then has nothing to place.
  static PairOptions polled_only() {
    PairOptions options = few();
    options.settings.progress.mode = ProgressMode::manual;
    return options;
  }
  static void set(Buffer& buffer, std::uint8_t value) {
    for (auto& byte : buffer.bytes()) byte = value;
  }
  // The peer sends so many bytes of this value, and they are there.
  void send(std::uint8_t value, std::uint32_t bytes) {
    set(*source_, value);
    ASSERT_EQ(pair_->a.send(value, {source_->sge(0, bytes)}), 0);
    expect_success(pair_->a, value);
  }
  void post(std::uint64_t number) {
    ASSERT_EQ(pair_->b.post_receive(number, {target_->sge(number * longest, longest)}), 0);
  }
  // Returns what one poll has found of two messages. Some polls look for other things than
  // messages first, and place nothing. So there are several tries.
  int poll_two(std::uint32_t first_bytes, std::uint32_t second_bytes) {
    int polled = 0;
    for (int tries = 0; tries < 5 && place_.used < 0; ++tries) {
      set(*target_, 0);
      post(1);
      post(2);
      send(5, first_bytes);
      send(6, second_bytes);
      polled = pair_->b.queue.poll(4, polled_.data(), &place_);
    }
    return polled;
  }
  [[nodiscard]] std::uint8_t first_of(std::uint64_t receive) const {
    return target_->bytes()[receive * longest];
  }

  std::optional<Pair> pair_;
  std::unique_ptr<Buffer> source_;
  std::unique_ptr<Buffer> target_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(longest);
  ReceivePlace place_{.at = memory_.data(), .bytes = memory_.size()};
  std::array<ibv_wc, 4> polled_{};
};

// One message of each poll, of one slot of the ring or of several.
TEST_F(PlacedElsewhere, IsTheFirstMessageOfAPoll) {
  for (const std::uint32_t bytes : {std::uint32_t{16}, std::uint32_t{1000}, longest}) {
    SCOPED_TRACE(bytes);
    place_ = {.at = memory_.data(), .bytes = memory_.size()};
    ASSERT_EQ(poll_two(bytes, bytes), 1);
    EXPECT_EQ(place_.used, 0);
    EXPECT_TRUE(place_.more);
    EXPECT_EQ(polled_[0].wr_id, 1);
    EXPECT_EQ(polled_[0].byte_len, bytes);
    ASSERT_EQ(pair_->b.queue.poll(4, polled_.data()), 1);
    EXPECT_EQ(polled_[0].wr_id, 2);
    EXPECT_EQ(polled_[0].byte_len, bytes);
    EXPECT_EQ(memory_[0], std::byte{5});
    EXPECT_EQ(memory_[bytes - 1], std::byte{5});
    EXPECT_EQ(first_of(1), 0);
    EXPECT_EQ(first_of(2), 6);
  }
}

TEST_F(PlacedElsewhere, IsNoMessageThatIsLongerThanThePlace) {
  place_.bytes = 999;
  ASSERT_EQ(poll_two(1000, 999), 2);
  EXPECT_EQ(place_.used, 1);
  EXPECT_EQ(first_of(1), 5);
  EXPECT_EQ(first_of(2), 0);
  EXPECT_EQ(memory_[998], std::byte{6});
}

// The receive is as long as it is, although the place is longer.
TEST_F(PlacedElsewhere, IsNoMessageThatItsReceiveIsTooShortFor) {
  ASSERT_EQ(pair_->b.post_receive(1, {target_->sge(0, 10)}), 0);
  set(*source_, 5);
  ASSERT_EQ(pair_->a.send(5, {source_->sge(0, 11)}), 0);
  EXPECT_EQ(pair_->a.await().status, IBV_WC_REM_INV_REQ_ERR);
  ASSERT_GE(pair_->b.queue.poll(4, polled_.data(), &place_), 1);
  EXPECT_EQ(polled_[0].status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(place_.used, -1);
}

TEST_F(PlacedElsewhere, IsNothingOfAPollThatFindsNothing) {
  post(1);
  EXPECT_EQ(pair_->b.queue.poll(4, polled_.data(), &place_), 0);
  EXPECT_EQ(place_.used, -1);
}

}  // namespace
}  // namespace weft::device
