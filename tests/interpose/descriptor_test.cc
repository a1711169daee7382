// Descriptors of the library do not take the low numbers that programs need, and are closed once.
#include "interpose/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::interpose {
namespace {

bool is_open(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

TEST(InterposeDescriptor, MovesToAHighNumber) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int least = static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, 2048));
  const int low = open("/dev/null", O_RDONLY);
  ASSERT_LT(low, least);
  const Descriptor high = move_high(Descriptor(low));
  EXPECT_GE(high.get(), least);
  EXPECT_FALSE(is_open(low));
  EXPECT_EQ(fcntl(high.get(), F_GETFD), FD_CLOEXEC);
  const Descriptor copy = copy_high(high.get());
  EXPECT_GE(copy.get(), least);
  EXPECT_NE(copy.get(), high.get());
}

TEST(InterposeDescriptor, IsClosedByItsLastOwner) {
  const int fd = open("/dev/null", O_RDONLY);
  {
    Descriptor first(fd);
    Descriptor second(std::move(first));
    EXPECT_FALSE(first.valid());
    Descriptor third;
    third = std::move(second);
    EXPECT_EQ(third.get(), fd);
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
  Descriptor given(open("/dev/null", O_RDONLY));
  const int kept = given.release();
  given.reset();
  EXPECT_TRUE(is_open(kept));
  close(kept);
}

TEST(InterposeDescriptor, AnInvalidNumberIsAnError) {
  EXPECT_THROW((void)copy_high(-1), Error);
}

}  // namespace
}  // namespace weft::interpose
