// Checks the rule of empty handles: weft/handle.hpp.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace weft::test {

// Each call must throw std::logic_error with the name of the handle's class in its text.
template <typename... Calls>
void expect_empty(std::string_view name, const Calls&... calls) {
  int number = 0;
  const auto check = [&](const auto& call) {
    ++number;
    try {
      call();
      ADD_FAILURE() << name << ": call " << number << " throws nothing";
    } catch (const std::logic_error& error) {
      EXPECT_NE(std::string_view(error.what()).find(name), std::string_view::npos) << error.what();
    }
  };
  (check(calls), ...);
}

}  // namespace weft::test
