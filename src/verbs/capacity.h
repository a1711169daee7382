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

// Of a queue pair; `error` is the errno of ibv_create_qp(3).
[[nodiscard]] Explanation explain_capacity(const Context& context, const ibv_qp_cap& capacity,
                                           int error);
[[nodiscard]] Explanation explain_entries(const Context& context, int entries, int vector);
// Of memory that could not be registered; `error` is the errno of ibv_reg_mr(3).
[[nodiscard]] Explanation explain_region(const Context& context, std::uint64_t bytes, int error);

}  // namespace weft::verbs::detail
