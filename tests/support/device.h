// What the tests of the C++ layers run on: the device that WEFT_TEST_DEVICE names, else the device
// that a program gets by default.
#pragma once

#include "support/host.h"
#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"

namespace weft::test {

[[nodiscard]] inline verbs::Context open_device() {
  return verbs::open_device(variable("WEFT_TEST_DEVICE", ""));
}

// Weft's own, or what stands in for it: then tests know what it has and what it is called.
[[nodiscard]] inline bool own_device() {
  return variable("WEFT_TEST_DEVICE", "weft0") == "weft0";
}

}  // namespace weft::test
