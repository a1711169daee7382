// How processes of this host connect to a listening socket that the program itself accepts from:
// for libweft-sockets.so, beside Table::adopt.
#pragma once

#include <rdma/rdma_cma.h>

namespace weft::provider {

// True: processes of this host that know this one need no TCP for their requests to the listening
// socket that `listener` has adopted. The requests come to `listener` like those of adopted
// connections. No effect where other sockets may listen at the same port (SO_REUSEPORT). False:
// closes that socket, so that peers do not find this process any more; a request that is under way
// at that moment still comes. Returns 0, or -1 with errno: EINVAL without such a socket.
int serve_host(rdma_cm_id* listener, bool serves);

}  // namespace weft::provider
