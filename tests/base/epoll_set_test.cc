// Waiting for descriptors by bare system calls, and waking a thread that waits.
#include "base/epoll_set.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "base/event_fd.h"

namespace weft {
namespace {

constexpr std::uint64_t token = 7;

TEST(EpollSet, ReportsWhatIsReadyWithItsToken) {
  const EpollSet set;
  const EventFd event;
  ASSERT_TRUE(set.valid());
  ASSERT_EQ(set.add(event.get(), EPOLLIN, token), 0);
  std::array<epoll_event, 4> room;
  EXPECT_TRUE(set.wait(room, 0).empty());
  event.signal();
  event.signal();
  const auto ready = set.wait(room, -1);
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0].data.u64, token);
  event.drain();
  EXPECT_TRUE(set.wait(room, 0).empty());
}

TEST(EpollSet, WakesAThreadThatWaits) {
  const EpollSet set;
  const EventFd event;
  ASSERT_EQ(set.add(event.get(), EPOLLIN, token), 0);
  std::thread waiting([&set] {
    std::array<epoll_event, 1> room;
    EXPECT_EQ(set.wait(room, -1).size(), 1U);
  });
  event.signal();
  waiting.join();
}

TEST(EpollSet, AOneShotIsRenewedByAChange) {
  const EpollSet set;
  const EventFd event;
  ASSERT_EQ(set.add(event.get(), EPOLLIN | EPOLLONESHOT, token), 0);
  event.signal();
  std::array<epoll_event, 1> room;
  EXPECT_EQ(set.wait(room, 0).size(), 1U);
  EXPECT_TRUE(set.wait(room, 0).empty());
  ASSERT_EQ(set.change(event.get(), EPOLLIN | EPOLLONESHOT, token), 0);
  EXPECT_EQ(set.wait(room, 0).size(), 1U);
}

TEST(EpollSet, RemovesAndReturnsErrors) {
  const EpollSet set;
  const EventFd event;
  ASSERT_EQ(set.add(event.get(), EPOLLIN, token), 0);
  EXPECT_EQ(set.add(event.get(), EPOLLIN, token), -EEXIST);
  event.signal();
  EXPECT_EQ(set.remove(event.get()), 0);
  std::array<epoll_event, 1> room;
  EXPECT_TRUE(set.wait(room, 0).empty());
  EXPECT_EQ(set.remove(event.get()), -ENOENT);
}

}  // namespace
}  // namespace weft
