// What the tests of the C++ layers run on: the device that WEFT_TEST_DEVICE names, which finds
// itself under the address WEFT_TEST_ADDRESS. Without them the device that a program gets by
// default, and loopback.
#pragma once

#include <cstdlib>
#include <string>

#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"

namespace weft::test {

inline std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

[[nodiscard]] inline verbs::Context open_device() {
  return verbs::open_device(variable("WEFT_TEST_DEVICE", ""));
}

// Weft's own, or what stands in for it: then tests know what it has and what it is called.
[[nodiscard]] inline bool own_device() {
  return variable("WEFT_TEST_DEVICE", "weft0") == "weft0";
}

[[nodiscard]] inline std::string host() {
  return variable("WEFT_TEST_ADDRESS", "127.0.0.1");
}

}  // namespace weft::test
