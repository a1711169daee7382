// What an error of the C++ layers says.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "weft/error.hpp"

namespace weft::test {

// The whole sentence, and what programs can read of it. Fails the test if `work` throws nothing.
inline std::pair<std::string, ErrorDetail> error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return {error.what(), error.detail()};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace weft::test
