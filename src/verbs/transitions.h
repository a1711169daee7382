// Explains errors of ibv_modify_qp(3): which attributes each transition requires and allows.
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace weft::verbs::detail {

// One sentence on why a device may have rejected a transition with EINVAL: it does not exist, or
// attributes are missing or not allowed. Empty if the table shows no reason.
[[nodiscard]] std::string explain_refusal(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                          int mask);

// The names of the attributes that explain_refusal() names; empty if there are none.
[[nodiscard]] std::string wrong_attributes(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                           int mask);

// A hint for a transition to RTR that failed because the peer's GID cannot be reached; empty for
// other errors.
[[nodiscard]] std::string explain_route(int error, const ibv_ah_attr& to);

}  // namespace weft::verbs::detail
