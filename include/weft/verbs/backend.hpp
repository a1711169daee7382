// Which implementation of verbs is behind the objects.
#pragma once

#include <string_view>

#include "weft/export.hpp"

namespace weft::verbs {

enum class Backend {
  embedded,   // Weft's own device in this process: an iWARP adapter over TCP
  system,     // rdma-core's devices
  automatic,  // an active device of the system, else the embedded one
};

// What WEFT_BACKEND says (embedded, system or auto), else embedded. Throws Error(EINVAL) for any
// other value.
[[nodiscard]] WEFT_API Backend default_backend();

[[nodiscard]] WEFT_API std::string_view to_string(Backend backend);

}  // namespace weft::verbs
