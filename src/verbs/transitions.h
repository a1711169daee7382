// Which attributes ibv_modify_qp(3) wants for which transition: to explain an EINVAL.
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace weft::verbs::detail {

// One sentence about why a device may have refused: that there is no such transition, or which
// attributes are missing and which do not belong there. Empty where neither is the case.
[[nodiscard]] std::string explain_refusal(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                          int mask);

// What to look at where a queue pair cannot get to RTR for want of a way to the peer, whom it
// addresses by GID; empty for other errors.
[[nodiscard]] std::string explain_route(int error, const ibv_ah_attr& to);

}  // namespace weft::verbs::detail
