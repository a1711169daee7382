// Which state changes ibv_modify_qp(3) allows, and with which attributes.
#pragma once

#include <infiniband/verbs.h>

namespace weft::device {

// 0, or EINVAL. `current` is the state now, `mask` an ibv_qp_attr_mask that holds IBV_QP_STATE.
// `complete`: attributes that InfiniBand requires must be there. An iWARP device takes its own from
// the connection and requires none.
[[nodiscard]] int check_transition(ibv_qp_type type, ibv_qp_state current, ibv_qp_state next,
                                   int mask, bool complete);

}  // namespace weft::device
