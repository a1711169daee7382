// Tests that a library which replaces close(2) can find Weft's own descriptors, and that they have
// high numbers.
#include "base/own_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <utility>

#include "base/descriptor.h"
#include "base/descriptor_bits.h"
#include "base/epoll_set.h"
#include "base/event_fd.h"
#include "base/timer_fd.h"

namespace weft {
namespace {

constexpr int floor = 200;

// Ends the account with the test: descriptors of later tests are where the kernel puts them.
class OwnDescriptors : public ::testing::Test {
 protected:
  OwnDescriptors() { own_descriptors::keep_account(account(), floor); }
  ~OwnDescriptors() override { own_descriptors::keep_account(nullptr, 0); }

 private:
  static own_descriptors::Account* account() {
    static own_descriptors::Account* const made = own_descriptors::make_account();
    return made;
  }
};

int new_descriptor() {
  return open("/dev/null", O_RDONLY);
}

TEST(DescriptorBits, FindsTheLeastNumberOfARange) {
  static DescriptorBits bits;
  EXPECT_EQ(bits.first_in(0, ~0U), -1);
  for (const int fd : {5, 63, 64, 200}) bits.set(fd);
  EXPECT_EQ(bits.first_in(0, ~0U), 5);
  EXPECT_EQ(bits.first_in(5, 5), 5);
  EXPECT_EQ(bits.first_in(6, 62), -1);
  EXPECT_EQ(bits.first_in(6, 63), 63);
  EXPECT_EQ(bits.first_in(64, ~0U), 64);
  EXPECT_EQ(bits.first_in(65, 199), -1);
  EXPECT_EQ(bits.first_in(65, 1U << 30), 200);
  EXPECT_EQ(bits.first_in(201, ~0U), -1);
  EXPECT_EQ(bits.first_in(1U << 30, ~0U), -1);
}

TEST(DescriptorBits, HasNoNumberBeyondTheMost) {
  static DescriptorBits bits;
  for (const int fd : {-1, 1 << 20, INT_MAX}) {
    bits.set(fd);
    EXPECT_FALSE(bits.test(fd)) << fd;
    bits.reset(fd);
  }
  bits.set((1 << 20) - 1);
  EXPECT_EQ(bits.first_in(0, ~0U), (1 << 20) - 1);
}

TEST_F(OwnDescriptors, AreKnownAsLongAsTheyAreOwned) {
  Descriptor first(new_descriptor());
  const int fd = first.get();
  EXPECT_TRUE(own_descriptors::owns(fd));
  Descriptor second(std::move(first));
  EXPECT_TRUE(own_descriptors::owns(fd));
  Descriptor third;
  third = std::move(second);
  EXPECT_TRUE(own_descriptors::owns(fd));
  third.reset();
  EXPECT_FALSE(own_descriptors::owns(fd));
}

TEST_F(OwnDescriptors, AreTheProgramsOnceTheyAreReleased) {
  Descriptor owned(new_descriptor());
  const int fd = owned.release();
  EXPECT_FALSE(own_descriptors::owns(fd));
  close(fd);
}

TEST_F(OwnDescriptors, AreReplacedInTheAccount) {
  Descriptor owned(new_descriptor());
  const int before = owned.get();
  const int after = new_descriptor();
  owned.reset(after);
  EXPECT_FALSE(own_descriptors::owns(before));
  EXPECT_TRUE(own_descriptors::owns(after));
}

TEST_F(OwnDescriptors, HaveHighNumbers) {
  const EventFd event;
  const EpollSet set;
  const TimerFd timer;
  const int low = new_descriptor();
  const Descriptor copy(own_descriptors::copy_high(low));
  const Descriptor moved(own_descriptors::moved_high(low));
  for (const int fd : {event.get(), set.get(), timer.get(), copy.get(), moved.get()}) {
    EXPECT_GE(fd, floor);
    EXPECT_TRUE(own_descriptors::owns(fd));
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(fcntl(low, F_GETFD), -1);
}

TEST_F(OwnDescriptors, AreWhereTheKernelPutsThemIfNoHighNumberIsAllowed) {
  own_descriptors::keep_account(nullptr, INT_MAX);
  const int low = new_descriptor();
  EXPECT_EQ(own_descriptors::moved_high(low), low);
  const Descriptor copy(own_descriptors::copy_high(low));
  EXPECT_TRUE(copy.valid());
  close(low);
}

// Its copies are of no use to it, and it may close them.
TEST_F(OwnDescriptors, AreNotKnownInAChild) {
  const Descriptor owned(new_descriptor());
  const pid_t child = fork();
  if (child == 0) {
    const bool none = own_descriptors::first_in(0, ~0U) == -1;
    const Descriptor made(new_descriptor());
    _exit(none && own_descriptors::owns(made.get()) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(own_descriptors::owns(owned.get()));
}

}  // namespace
}  // namespace weft
