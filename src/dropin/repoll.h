// repoll_create, repoll_ctl and repoll_wait of rdma-core 65: what epoll(7) is for sockets, for
// rsockets and ordinary descriptors together.
#pragma once

namespace weft::dropin {

// For rclose(): returns true if the descriptor was one of repoll_create(), which is closed then.
bool close_repoll(int descriptor);
// Removes a descriptor that is closed from all sets, as the kernel does for epoll.
void forget_descriptor(int descriptor);

}  // namespace weft::dropin
