#include "check/objects.h"

#include <gtest/gtest.h>

namespace weft::check {
namespace {

constexpr StackId stack = 7;
int place = 0;  // the address of objects
const void* const handle = &place;

TEST(Objects, AreRememberedAfterTheirEnd) {
  Objects objects;
  objects.add({.kind = Kind::id, .handle = handle});
  objects.destroy(handle, stack, "rdma_destroy_id", objects.additions());
  EXPECT_EQ(objects.find(handle), nullptr);
  const Object* const destroyed = objects.find_destroyed(handle);
  ASSERT_NE(destroyed, nullptr);
  EXPECT_EQ(destroyed->destroyed, stack);
  EXPECT_EQ(destroyed->destroyer, "rdma_destroy_id");
}

// The device has freed the address before the call of one thread ends, and another thread has a new
// object there meanwhile.
TEST(Objects, ANewOneAtTheSameAddressIsNotDestroyed) {
  Objects objects;
  objects.add({.kind = Kind::id, .handle = handle});
  const auto at_begin = objects.additions();
  objects.add({.kind = Kind::id, .handle = handle});
  objects.destroy(handle, stack, "rdma_destroy_id", at_begin);
  ASSERT_NE(objects.find(handle), nullptr);
  EXPECT_EQ(objects.find(handle)->number, 2U);
  EXPECT_EQ(objects.find_destroyed(handle), nullptr);
}

}  // namespace
}  // namespace weft::check
