#include "verbs/tables.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "base/simulated_kernel.h"
#include "provider/environment.h"
#include "provider/system.h"
#include "verbs/failure.h"
#include "verbs/program_table.h"

namespace weft::verbs {
namespace {

// An empty variable counts as unset, as elsewhere in Weft.
std::string_view variable(const char* name) {
  const char* value = secure_getenv(name);
  return value ? value : "";
}

BackendChoice choose_system() {
  const provider::System& system = provider::system_provider();
  if (!system.table) detail::fail(ENODEV, "the system backend is not available: " + system.reason);
  return {Backend::system, "the system backend was requested"};
}

// The reasons are printed for the user, so each names what was missing or found.
BackendChoice find_active() {
  const provider::System& system = provider::system_provider();
  if (!system.table) return {Backend::embedded, system.reason};
  const std::string device = provider::active_device(*system.table);
  if (device.empty()) return {Backend::embedded, "no device of the system has an active port"};
  return {Backend::system, "the port of " + device + " is active"};
}

// The result is computed once per process, so that all objects of a program use the same backend,
// and the message is printed once.
BackendChoice choose_automatically() {
  static const BackendChoice choice = [] {
    BackendChoice made = find_active();
    if (!provider::environment_is_quiet()) {
      log(LogLevel::info, "backend",
          fmt::format("backend {}: {}", to_string(made.backend), made.reason));
    }
    return made;
  }();
  return choice;
}

// Resolves the request without looking at WEFT_REQUIRE.
BackendChoice choose_freely(Backend requested) {
  switch (requested) {
    case Backend::system:
      return choose_system();
    case Backend::automatic:
      return choose_automatically();
    case Backend::embedded:
      break;
  }
  return {Backend::embedded, "the embedded device is the default"};
}

[[noreturn]] void refuse(std::string_view requirement, const BackendChoice& choice) {
  detail::fail(EPERM, fmt::format("{}, but the backend is {}: {}", requirement,
                                  to_string(choice.backend), choice.reason));
}

}  // namespace

std::string_view to_string(Backend backend) {
  switch (backend) {
    case Backend::embedded:
      return "embedded";
    case Backend::system:
      return "system";
    case Backend::automatic:
      return "auto";
  }
  return "unknown";
}

Backend default_backend() {
  if (SimulatedKernel::current()) [[unlikely]]
    return Backend::embedded;
  const std::string_view value = variable("WEFT_BACKEND");
  if (value.empty()) return Backend::embedded;
  for (const Backend backend : {Backend::embedded, Backend::system, Backend::automatic}) {
    if (value == to_string(backend)) return backend;
  }
  detail::fail(EINVAL, "WEFT_BACKEND=" + std::string(value) + ": must be embedded, system or auto");
}

// WEFT_REQUIRE is checked after the choice: the error message can then give the reason for the
// choice.
BackendChoice choose_backend(Backend requested) {
  BackendChoice choice = choose_freely(requested);
  const std::string_view required = variable("WEFT_REQUIRE");
  // WEFT_REQUIRE lets a test fail loudly that would otherwise run on the wrong backend without a
  // word.
  if (required.empty() || required == to_string(choice.backend)) return choice;
  if (required != "embedded" && required != "system") {
    detail::fail(EINVAL, fmt::format("WEFT_REQUIRE={}: must be embedded or system", required));
  }
  refuse(fmt::format("WEFT_REQUIRE={}", required), choice);
}

void require_backend(Backend required, Backend requested) {
  const BackendChoice choice = choose_backend(requested);
  if (required != choice.backend) {
    refuse(fmt::format("the program requires {}", to_string(required)), choice);
  }
}

namespace detail {

// The returned table lives as long as the process.
Chosen choose(Backend requested) {
  if (SimulatedKernel::current()) [[unlikely]]
    return {embedded_table(), Backend::embedded};
  const BackendChoice choice = choose_backend(requested);
  if (choice.backend == Backend::system) {
    return {*provider::system_provider().table, Backend::system};
  }
  return {embedded_table(), Backend::embedded};
}

}  // namespace detail
}  // namespace weft::verbs
