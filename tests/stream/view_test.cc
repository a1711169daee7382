// Receiving without a copy: Stream::view() and Stream::consume().
#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <future>

#include "stream/sides.h"

namespace weft::stream {
namespace {

class Views : public BothVariants {};
WEFT_BOTH_VARIANTS(Views);

std::string text_of_view(Stream& stream) {
  const View view = stream.view(test_timeout);
  EXPECT_TRUE(view.transfer.ok());
  EXPECT_EQ(view.transfer.bytes, view.bytes.size());
  return text_of(view.bytes);
}

TEST_P(Views, BytesStayUntilTheyAreConsumed) {
  Sides sides(options());
  ASSERT_TRUE(sides.active.send(bytes_of("one two"), test_timeout).ok());
  EXPECT_EQ(text_of_view(*sides.passive), "one two");
  EXPECT_EQ(text_of_view(*sides.passive), "one two");
  EXPECT_EQ(sides.passive->bytes_available(), 7U);
  sides.passive->consume(4);
  EXPECT_EQ(text_of_view(*sides.passive), "two");
  sides.passive->consume(0);
  sides.passive->consume(3);
  EXPECT_TRUE(sides.passive->view(Deadline::now()).transfer.would_block());
}

// Rings of an odd size, so that views end at different places; each byte is compared.
TEST_P(Views, EverythingArrivesInOrderAroundTheRing) {
  Options wanted = options();
  wanted.receive_buffer_bytes = 30'011;
  Sides sides(wanted);
  const auto bytes = test::pattern(1'000'003);
  auto sent =
      std::async(std::launch::async, [&] { return sides.active.send(bytes, test_timeout).bytes; });
  std::size_t at = 0;
  std::size_t turn = 0;
  while (at < bytes.size()) {
    const View view = sides.passive->view(test_timeout);
    ASSERT_TRUE(view.transfer.ok());
    ASSERT_FALSE(view.bytes.empty());
    ASSERT_LE(view.bytes.size(), bytes.size() - at);
    ASSERT_TRUE(std::ranges::equal(view.bytes, std::span(bytes).subspan(at, view.bytes.size())));
    // All of it, or a part, in turn.
    const std::size_t taken = ++turn % 3 == 0 ? (view.bytes.size() + 1) / 2 : view.bytes.size();
    sides.passive->consume(taken);
    at += taken;
  }
  EXPECT_EQ(sent.get(), bytes.size());
}

TEST_P(Views, AreMixedWithReceive) {
  Sides sides(options());
  ASSERT_TRUE(sides.active.send(bytes_of("abcdef"), test_timeout).ok());
  ASSERT_EQ(text_of_view(*sides.passive), "abcdef");
  EXPECT_EQ(text_of(receive_all(*sides.passive, 2)), "ab");
  EXPECT_THROW(sides.passive->consume(1), Error) << "the view is of bytes that were received";
  EXPECT_EQ(text_of_view(*sides.passive), "cdef");
  sides.passive->consume(1);
  EXPECT_EQ(text_of(receive_all(*sides.passive, 3)), "def");
}

TEST_P(Views, NoMoreThanTheViewIsConsumed) {
  Sides sides(options());
  EXPECT_THROW(sides.passive->consume(1), Error);
  ASSERT_TRUE(sides.active.send(bytes_of("ab"), test_timeout).ok());
  EXPECT_EQ(text_of_view(*sides.passive), "ab");
  try {
    sides.passive->consume(3);
    FAIL() << "three of two bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
    EXPECT_THAT(error.what(),
                testing::StartsWith("a stream cannot consume 3 bytes: its view has 2"));
  }
  EXPECT_EQ(text_of_view(*sides.passive), "ab") << "nothing was consumed";
}

TEST_P(Views, TheEndAndAResetComeBehindTheBytes) {
  for (const bool reset : {false, true}) {
    Sides sides(options());
    ASSERT_TRUE(sides.active.send(bytes_of("last"), test_timeout).ok());
    EXPECT_EQ(text_of_view(*sides.passive), "last");
    if (reset) {
      sides.active.abort();
    } else {
      sides.active.finish();
    }
    EXPECT_EQ(text_of_view(*sides.passive), "last");
    sides.passive->consume(4);
    const View view = sides.passive->view(test_timeout);
    EXPECT_TRUE(view.bytes.empty());
    EXPECT_EQ(view.transfer.end(), !reset);
    EXPECT_EQ(view.transfer.error_number, reset ? ECONNRESET : 0);
  }
}

TEST_P(Views, AClosedStreamHasNone) {
  Sides sides(options());
  ASSERT_TRUE(sides.active.send(bytes_of("late"), test_timeout).ok());
  EXPECT_EQ(text_of_view(*sides.passive), "late");
  auto waiting = std::async(std::launch::async, [&] { return sides.active.view(test_timeout); });
  sides.active.close(Deadline::now());
  const View closed = waiting.get();
  EXPECT_EQ(closed.transfer.error_number, ECANCELED);
  EXPECT_TRUE(closed.bytes.empty());
  sides.passive->close(Deadline::now());
  EXPECT_EQ(sides.passive->view(test_timeout).transfer.error_number, ECANCELED);
  EXPECT_NO_THROW(sides.passive->consume(4)) << "as for a program that closes in another thread";
}

}  // namespace
}  // namespace weft::stream
