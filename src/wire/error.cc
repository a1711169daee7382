#include "wire/error.h"

namespace weft::wire {

const char* describe(WireError error) {
  switch (error) {
    case WireError::truncated:
      return "truncated";
    case WireError::bad_key:
      return "neither an MPA request nor an MPA reply";
    case WireError::bad_revision:
      return "unsupported MPA revision";
    case WireError::bad_length:
      return "length out of range";
    case WireError::bad_version:
      return "unsupported version";
    case WireError::wrong_model:
      return "wrong DDP buffer model (tagged or untagged)";
    case WireError::bad_marker:
      return "MPA marker does not point at its FPDU";
    case WireError::bad_value:
      return "a value that the protocol does not know";
  }
  return "unknown";
}

}  // namespace weft::wire
