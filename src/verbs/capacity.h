// Explains why queues could not be created: which of the device's limits a request exceeds.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "weft/error.hpp"
#include "weft/verbs/context.hpp"

namespace weft::verbs::detail {

struct Explanation {
  std::string text;  // ": …", to be appended; empty if no limit is known to be exceeded
  ErrorDetail detail;
};

[[nodiscard]] Explanation explain_capacity(const Context& context, const ibv_qp_cap& capacity);
[[nodiscard]] Explanation explain_entries(const Context& context, int entries);

}  // namespace weft::verbs::detail
