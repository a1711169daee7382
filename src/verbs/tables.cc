#include "verbs/tables.h"

#include <cerrno>
#include <cstdlib>
#include <string>

#include "provider/embedded.h"
#include "verbs/failure.h"

namespace weft::verbs {

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
  const char* variable = std::getenv("WEFT_BACKEND");
  const std::string_view wish = variable ? variable : "";
  if (wish.empty()) return Backend::embedded;
  for (const Backend backend : {Backend::embedded, Backend::system, Backend::automatic}) {
    if (wish == to_string(backend)) return backend;
  }
  detail::fail(EINVAL, "WEFT_BACKEND=" + std::string(wish) + ": must be embedded, system or auto");
}

namespace detail {

Chosen choose(Backend backend) {
  if (backend == Backend::system) {
    fail(EOPNOTSUPP, "the backend for the system's devices is not built in; use the embedded one");
  }
  return {provider::embedded(), Backend::embedded};
}

}  // namespace detail
}  // namespace weft::verbs
