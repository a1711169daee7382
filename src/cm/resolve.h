// Which addresses an id may use: the checks of rdma_bind_addr(3), and rdma_resolve_addr(3). The
// functions are called with the lock of the id held and return 0 or an errno value.
#pragma once

#include "cm/id_state.h"

namespace weft::cm {

// ENODEV where the user has given the device one address and this is another one.
int check_local(IdState& state, const sockaddr_storage& address);

// Finds the source address for `destination`, and stores both in the handle. `source`: the
// program's, or AF_UNSPEC; ignored in stage `bound`. Addresses are as the program knows them.
int resolve(IdState& state, sockaddr_storage source, sockaddr_storage destination);

}  // namespace weft::cm
