// The choice between Weft's own device and the devices of rdma-core.
#pragma once

#include <string>
#include <string_view>

#include "weft/export.hpp"

namespace weft::verbs {

enum class Backend {
  embedded,   // Weft's own device in this process: an iWARP adapter over TCP
  system,     // rdma-core's devices
  automatic,  // an active device of the system, else the embedded one
};

// The backend that WEFT_BACKEND names (embedded, system or auto); embedded if it is not set. Throws
// Error(EINVAL) for any other value.
[[nodiscard]] WEFT_API Backend default_backend();

// The name of the backend: "auto", "embedded" or "system".
[[nodiscard]] WEFT_API std::string_view to_string(Backend backend);

// The backend that was actually chosen, and the reason. Backend::automatic is resolved once per
// process.
struct BackendChoice {
  Backend backend;     // embedded or system
  std::string reason;  // one sentence
};

// Resolves a request to the backend to use. Every object that is made from a Backend calls this.
// Throws Error: ENODEV if the system's libraries are requested and not usable, EPERM if
// WEFT_REQUIRE (embedded or system) names the other backend, EINVAL if WEFT_REQUIRE has any other
// value; the message gives the reason. Backend::automatic prints the chosen backend on standard
// error, once per process (not with WEFT_QUIET=1). Thread-safe.
[[nodiscard]] WEFT_API BackendChoice choose_backend(Backend requested = default_backend());

// For programs that work with one backend only: throws Error(EPERM) if the request resolves to the
// other one.
WEFT_API void require_backend(Backend required, Backend requested = default_backend());

}  // namespace weft::verbs
