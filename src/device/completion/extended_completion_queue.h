// The extended completion queue: ibv_create_cq_ex(3). One object with the plain one, so that both
// ways of polling see the same completions.
#pragma once

#include <infiniband/verbs.h>

namespace weft::device {

// Null with errno set: EINVAL for sizes and vectors, EOPNOTSUPP for fields that this device never
// fills in (VLAN, flow tag, tag matching).
ibv_cq_ex* create_extended_completion_queue(ibv_context* context, ibv_cq_init_attr_ex* attributes);

// ibv_query_rt_values_ex(3): the clock of the raw completion timestamps. As drivers of adapters do,
// the whole count is in tv_nsec: it compares with ibv_wc_read_completion_ts() without arithmetic.
int query_real_time_values(ibv_context* context, ibv_values_ex* values);

}  // namespace weft::device
