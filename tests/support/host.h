// The address by which the tested device can reach itself: WEFT_TEST_ADDRESS, else loopback.
#pragma once

#include <cstdlib>
#include <string>

namespace weft::test {

inline std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

[[nodiscard]] inline std::string host() {
  return variable("WEFT_TEST_ADDRESS", "127.0.0.1");
}

}  // namespace weft::test
