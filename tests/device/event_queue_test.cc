// The queue of events with a descriptor: waiting, taking and withdrawing events.
#include "device/completion/event_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <vector>

#include "support/refuse.h"

namespace weft::device {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class EventQueueTest : public testing::Test {
 protected:
  bool is_readable() {
    pollfd waited{queue_.fd(), POLLIN, 0};
    return ::poll(&waited, 1, 0) == 1;
  }
  static bool is_even(int event) { return event % 2 == 0; }

  EventQueue<int> queue_;
};

TEST_F(EventQueueTest, IsReadableAsLongAsAnEventWaits) {
  EXPECT_FALSE(is_readable());
  queue_.push(1);
  queue_.push(2);
  int event = 0;
  for (const int expected : {1, 2}) {
    EXPECT_TRUE(is_readable());
    ASSERT_EQ(sys::await_token(queue_.fd()), 0);
    ASSERT_TRUE(queue_.take(event));
    EXPECT_EQ(event, expected);
  }
  EXPECT_FALSE(is_readable());
}

TEST_F(EventQueueTest, WithdrawsOnlyWhatMatches) {
  for (const int event : {1, 2, 3, 4}) queue_.push(event);
  EXPECT_THAT(queue_.withdraw(is_even), ElementsAre(2, 4));
  int event = 0;
  for (const int expected : {1, 3}) {
    ASSERT_EQ(sys::await_token(queue_.fd()), 0);
    ASSERT_TRUE(queue_.take(event));
    EXPECT_EQ(event, expected);
  }
  EXPECT_FALSE(is_readable());
}

// withdraw() must wait for a reader that holds a token: the reader would otherwise use a closed
// descriptor.
TEST_F(EventQueueTest, LeavesToAReaderWhatItHasATokenFor) {
  queue_.push(2);
  ASSERT_EQ(sys::await_token(queue_.fd()), 0);
  auto withdrawn = std::async(std::launch::async, [this] { return queue_.withdraw(is_even); });
  int event = 0;
  EXPECT_TRUE(queue_.take(event));
  EXPECT_EQ(event, 2);
  EXPECT_THAT(withdrawn.get(), IsEmpty());
}

// Linux before 5.8 and sandboxes refuse preadv2() with RWF_NOWAIT on an event descriptor.
TEST_F(EventQueueTest, WithdrawsTheTokenWhereTheCallIsRefused) {
  const bool possible = test::run_without({SYS_preadv2}, EOPNOTSUPP, [&] {
    for (const int event : {1, 2, 3, 4}) queue_.push(event);
    EXPECT_THAT(queue_.withdraw(is_even), ElementsAre(2, 4));
    EXPECT_FALSE(sys::nonblocking(queue_.fd()));
  });
  if (!possible) GTEST_SKIP() << "no seccomp filters here";
  int event = 0;
  for (const int expected : {1, 3}) {
    ASSERT_EQ(sys::await_token(queue_.fd()), 0);
    ASSERT_TRUE(queue_.take(event));
    EXPECT_EQ(event, expected);
  }
  EXPECT_FALSE(is_readable());
}

// withdraw() must not wait forever: the thread may be cancelled between taking the token and the
// event.
TEST_F(EventQueueTest, DoesNotWaitForeverForAReader) {
  queue_.push(2);
  ASSERT_EQ(sys::await_token(queue_.fd()), 0);
  EXPECT_THAT(queue_.withdraw(is_even), ElementsAre(2));
}

}  // namespace
}  // namespace weft::device
