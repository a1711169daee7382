// The names that rdma-core has for values of verbs; logs and tests compare them. A value without a
// name gives "unknown". The strings have static lifetime.
#pragma once

#include <infiniband/verbs.h>

namespace weft::provider {

const char* name_of(ibv_node_type type);
const char* name_of(ibv_port_state state);
const char* name_of(ibv_event_type event);
const char* name_of(ibv_wc_status status);

}  // namespace weft::provider
