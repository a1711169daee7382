// Calls that wait for many bytes and take none, so that the sender gets no room meanwhile.
#include <future>
#include <thread>

#include "stream/sides.h"

namespace weft::stream {
namespace {

class Peeking : public BothVariants {
 protected:
  [[nodiscard]] static Options options() {
    Options options = BothVariants::options();
    options.spin = 0us;  // calls that wait sleep at once, and have to be woken
    return options;
  }
};
WEFT_BOTH_VARIANTS(Peeking);

// Peeks as recv(2) does with MSG_PEEK and MSG_WAITALL.
std::vector<std::byte> peek_all(Stream& from, std::size_t bytes) {
  std::vector<std::byte> got(bytes);
  const auto outcome = from.receive(got, test_timeout, {.peek = true, .wait_all = true});
  got.resize(outcome.bytes);
  return got;
}

void await_available(Stream& stream, std::size_t bytes) {
  while (stream.bytes_available() < bytes) std::this_thread::yield();
}

// Less than half of the ring was read, for which the sender is neither told nor woken otherwise.
TEST_P(Peeking, MayNeedTheWholeRing) {
  constexpr std::size_t ring = 1000;
  constexpr std::size_t read = 300;
  Options wanted = options();
  wanted.receive_buffer_bytes = ring;
  Sides sides(wanted);
  for (std::uint64_t round = 0; round < 10; ++round) {
    const auto bytes = test::pattern(ring + read, round);
    auto sent =
        std::async(std::launch::async, [&] { return sides.active.send(bytes, test_timeout); });
    await_available(*sides.passive, ring);
    const std::span all(bytes);
    ASSERT_TRUE(std::ranges::equal(receive_all(*sides.passive, read), all.first(read)));
    ASSERT_TRUE(std::ranges::equal(peek_all(*sides.passive, ring), all.subspan(read)));
    ASSERT_TRUE(std::ranges::equal(receive_all(*sides.passive, ring), all.subspan(read)));
    ASSERT_EQ(sent.get().bytes, bytes.size());
  }
}

// A ring grows only where its end is reached: this one is full before.
TEST_P(Peeking, ReturnsWhatARingHoldsThatCannotGrow) {
  Sides sides(options());
  const auto first = test::pattern(20'000, 1);
  ASSERT_TRUE(sides.active.send(first, test_timeout).ok());
  ASSERT_EQ(receive_all(*sides.passive, first.size()), first);
  // Behind the message that returns the room: with less room the ring would have grown.
  ASSERT_TRUE(sides.passive->send(bytes_of("!"), test_timeout).ok());
  ASSERT_EQ(text_of(receive_all(sides.active, 1)), "!");
  ASSERT_TRUE(sides.active.send(first, test_timeout).ok());
  await_available(*sides.passive, first.size());
  const auto second = test::pattern(100'000, 2);
  auto sent =
      std::async(std::launch::async, [&] { return sides.active.send(second, test_timeout); });
  auto all = first;
  all.insert(all.end(), second.begin(), second.end());
  const auto peeked = peek_all(*sides.passive, all.size());
  EXPECT_EQ(peeked.size(), default_buffer_bytes);
  EXPECT_TRUE(std::ranges::equal(peeked, std::span(all).first(peeked.size())));
  EXPECT_EQ(receive_all(*sides.passive, all.size()), all);
  EXPECT_EQ(sent.get().bytes, second.size());
}

// The sender has no place for the message about the growth when the ring is full, and waits.
TEST_P(Peeking, LetsTheRingGrowForRegisteredMemory) {
  if (test::open_device().backend() != verbs::Backend::embedded) {
    GTEST_SKIP() << "no ring grows on the device of the system";
  }
  Options wanted = options();
  wanted.send_queue = min_queue;
  Sides sides(wanted);
  auto bytes = test::pattern(100'000);
  const auto region = sides.active.domain().register_memory(std::span(bytes));
  auto sent = std::async(std::launch::async, [&] {
    return sides.active.send_registered(region.slice(), test_timeout);
  });
  EXPECT_EQ(peek_all(*sides.passive, bytes.size()), bytes);
  EXPECT_EQ(sent.get().bytes, bytes.size());
}

TEST_P(Peeking, MayBeginBeforeTheStreamIsConnected) {
  Listener listener({test::host(), 0}, options());
  listener.listen();
  Stream active(options());
  active.start_connecting({test::host(), listener.port()});
  auto peeked = std::async(std::launch::async, [&] { return peek_all(active, 5); });
  Stream passive = listener.accept(test_timeout);
  ASSERT_TRUE(passive.send(bytes_of("a"), test_timeout).ok());
  // Nothing depends on this time: a call that is content with one byte may return in it.
  EXPECT_EQ(peeked.wait_for(20ms), std::future_status::timeout);
  ASSERT_TRUE(passive.send(bytes_of("bcde"), test_timeout).ok());
  EXPECT_EQ(text_of(peeked.get()), "abcde");
}

}  // namespace
}  // namespace weft::stream
