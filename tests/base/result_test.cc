#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace weft {
namespace {

enum class Reason { none, missing, broken };

Result<std::string, Reason> greet(bool ok) {
  if (!ok) return Reason::missing;
  return std::string("hello");
}

TEST(Result, HoldsAValue) {
  auto result = greet(true);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result);
  EXPECT_EQ(*result, "hello");
  EXPECT_EQ(result->size(), 5U);
  result.value() += "!";
  EXPECT_EQ(std::as_const(result).value(), "hello!");
  EXPECT_EQ(*std::as_const(result), "hello!");
  EXPECT_EQ(std::as_const(result)->size(), 6U);
}

TEST(Result, HoldsTheReasonWhyThereIsNone) {
  const auto result = greet(false);
  EXPECT_FALSE(result.ok());
  EXPECT_FALSE(result);
  EXPECT_EQ(result.error(), Reason::missing);
}

// An error with the value zero is still an error.
TEST(Result, TellsAnErrorByItsKindAndNotByItsValue) {
  const Result<int, Reason> result = Reason::none;
  EXPECT_FALSE(result);
  EXPECT_TRUE((Result<int, Reason>(0)));
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>, Reason> result = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = std::move(*result);
  EXPECT_EQ(*taken, 7);
}

}  // namespace
}  // namespace weft
