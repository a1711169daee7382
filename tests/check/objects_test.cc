#include "check/objects.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>

#include "base/freed_objects.h"
#include "base/kept_memory.h"

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

// Some objects are not at the beginning of their memory.
TEST(Objects, AreForgottenWithTheirMemory) {
  struct {
    int before;
    int first;
    int last;
    int behind;
  } memory;
  Objects objects;
  const std::initializer_list<const int*> all{&memory.before, &memory.first, &memory.last,
                                              &memory.behind};
  for (const int* each : all) {
    objects.add({.kind = Kind::id, .handle = each});
    objects.destroy(each, stack, "rdma_destroy_id", objects.additions());
  }
  objects.forget(&memory.first, 2 * sizeof(int));
  EXPECT_NE(objects.find_destroyed(&memory.before), nullptr);
  EXPECT_EQ(objects.find_destroyed(&memory.first), nullptr);
  EXPECT_EQ(objects.find_destroyed(&memory.last), nullptr);
  EXPECT_NE(objects.find_destroyed(&memory.behind), nullptr);
}

struct Destroyed : KeptMemory {
  char byte = 0;
};

const void* freed_first = nullptr;
std::size_t freed_bytes = 0;

TEST(KeptMemory, SaysWhenItIsFreed) {
  call_when_freed([](const void* memory, std::size_t bytes) {
    if (freed_first) return;
    freed_first = memory;
    freed_bytes = bytes;
  });
  keep_memory_of_destroyed();
  constexpr int more_than_are_kept = 5000;
  const void* first = nullptr;
  for (int i = 0; i < more_than_are_kept; ++i) {
    const auto made = std::make_unique<Destroyed>();
    if (!first) first = made.get();
  }
  EXPECT_EQ(freed_first, first);
  EXPECT_GE(freed_bytes, sizeof(Destroyed));
}

}  // namespace
}  // namespace weft::check
