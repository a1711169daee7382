// Which implementation of verbs is behind the objects.
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

// What WEFT_BACKEND says (embedded, system or auto), else embedded. Throws Error(EINVAL) for any
// other value.
[[nodiscard]] WEFT_API Backend default_backend();

[[nodiscard]] WEFT_API std::string_view to_string(Backend backend);

// What a wish comes to on this machine, and why. Under Backend::automatic that is decided once for
// the process.
struct BackendChoice {
  Backend backend;     // embedded or system
  std::string reason;  // one sentence
};

// Throws Error: ENODEV where the system's libraries are asked for and cannot be had, EPERM where
// WEFT_REQUIRE (embedded or system) names the other one; the message says why. Every object that is
// made from a Backend goes through this. With Backend::automatic it says once on standard error
// which backend it is (not with WEFT_QUIET=1).
[[nodiscard]] WEFT_API BackendChoice choose_backend(Backend wish = default_backend());

// The same for a program that works with one backend only: EPERM where the wish comes to the other.
WEFT_API void require_backend(Backend required, Backend wish = default_backend());

}  // namespace weft::verbs
