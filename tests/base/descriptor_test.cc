// A descriptor is closed once, by its last owner.
#include "base/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

namespace weft {
namespace {

bool is_open(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

TEST(Descriptor, IsClosedByItsLastOwner) {
  const int fd = open("/dev/null", O_RDONLY);
  {
    Descriptor first(fd);
    Descriptor second(std::move(first));
    EXPECT_FALSE(first.valid());
    Descriptor third;
    third = std::move(second);
    EXPECT_FALSE(second.valid());
    EXPECT_EQ(third.get(), fd);
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(Descriptor, ClosesWhatItHadWhenItGetsAnother) {
  const int before = open("/dev/null", O_RDONLY);
  Descriptor owned(before);
  owned = Descriptor(open("/dev/null", O_RDONLY));
  EXPECT_FALSE(is_open(before));
  EXPECT_TRUE(is_open(owned.get()));
}

TEST(Descriptor, IsLeftOpenOnRelease) {
  Descriptor owned(open("/dev/null", O_RDONLY));
  const int kept = owned.release();
  owned.reset();
  EXPECT_TRUE(is_open(kept));
  close(kept);
}

}  // namespace
}  // namespace weft
