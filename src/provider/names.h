// What rdma-core calls values of verbs: logs and tests compare these words. "unknown" for a value
// that has none. All are valid for ever.
#pragma once

#include <infiniband/verbs.h>

namespace weft::provider {

const char* name_of(ibv_node_type type);
const char* name_of(ibv_port_state state);
const char* name_of(ibv_event_type event);
const char* name_of(ibv_wc_status status);

}  // namespace weft::provider
