#include "wire/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace weft::wire {
namespace {

TEST(WireError, EachHasWordsOfItsOwn) {
  std::set<std::string> seen{"unknown"};
  for (int value = 0; value <= static_cast<int>(WireError::bad_value); ++value) {
    EXPECT_TRUE(seen.insert(describe(static_cast<WireError>(value))).second) << value;
  }
}

}  // namespace
}  // namespace weft::wire
