// The device that the tests of the C++ layers use: the one that WEFT_TEST_DEVICE names, else the
// default device.
#pragma once

#include "support/host.h"
#include "weft/verbs/context.hpp"
#include "weft/verbs/device.hpp"

namespace weft::test {

[[nodiscard]] inline verbs::Context open_device() {
  return verbs::open_device(variable("WEFT_TEST_DEVICE", ""));
}

// True for Weft's own device, or a replacement with its name: tests may then rely on its name and
// features.
[[nodiscard]] inline bool own_device() {
  return variable("WEFT_TEST_DEVICE", "weft0") == "weft0";
}

}  // namespace weft::test
