// How a queue pair moves its data, for statistics and messages.
#pragma once

#include <string_view>

namespace weft::device {

// The texts are constants.
struct CarrierNote {
  std::string_view name = "none";  // or "tcp", "same-host", "udp"
  std::string_view reason;         // for "tcp": why not "same-host", as the end of "because ..."
};

}  // namespace weft::device
