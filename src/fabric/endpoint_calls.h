// The tables of an endpoint, through which programs call it.
#pragma once

#include <rdma/fi_endpoint.h>

namespace weft::fabric {

[[nodiscard]] fid_ep handle_of_endpoint(void* context);

}  // namespace weft::fabric
