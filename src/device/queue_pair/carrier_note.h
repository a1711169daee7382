// How a queue pair moves its data, for statistics and messages.
#pragma once

#include <string_view>

namespace weft::device {

// The texts are constants.
struct CarrierNote {
  std::string_view name = "none";  // or "tcp", "same-host", "udp"
  // As the end of "because ...": for "tcp" why not "same-host", and for that why payload is copied
  // through shared memory; empty where it is not.
  std::string_view reason;
};

}  // namespace weft::device
