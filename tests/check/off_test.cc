#include <gtest/gtest.h>

#include <cstdlib>

#include "check/table.h"

namespace weft::check {
namespace {

// Without the checks a program calls the device's own functions.
TEST(Off, TheTableIsThatOfTheDevice) {
  unsetenv("WEFT_CHECK");
  const provider::Table device{};
  EXPECT_EQ(&with_checks(device), &device);
}

}  // namespace
}  // namespace weft::check
