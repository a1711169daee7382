// The function tables of an active endpoint.
#pragma once

#include <rdma/fi_endpoint.h>

namespace weft::fabric {

// The handle of a new endpoint, with all tables set.
[[nodiscard]] fid_ep handle_of_endpoint(void* context);

}  // namespace weft::fabric
