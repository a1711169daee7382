// Extended completion queues, ibv_create_cq_ex(3). They are the same objects as plain ones, so both
// ways of polling see the same completions.
#pragma once

#include <infiniband/verbs.h>

namespace weft::device {

// Returns null with errno set: EINVAL for wrong sizes and vectors, EOPNOTSUPP for fields that this
// device never fills in (VLAN, flow tag, tag matching).
ibv_cq_ex* create_extended_completion_queue(ibv_context* context, ibv_cq_init_attr_ex* attributes);

// ibv_query_rt_values_ex(3): reads the clock of the raw completion timestamps. As with adapters'
// drivers, tv_nsec has the whole count, so it can be compared with ibv_wc_read_completion_ts()
// directly.
int query_real_time_values(ibv_context* context, ibv_values_ex* values);

}  // namespace weft::device
