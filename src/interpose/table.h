// Which descriptors of the program are sockets of ours.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "interpose/socket.h"

namespace weft::interpose {

// Null where the descriptor is none of ours; costs a load then.
[[nodiscard]] std::shared_ptr<Socket> find(int fd);
// The same, but null also where the kernel does what there is to do.
[[nodiscard]] std::shared_ptr<Socket> find_stream(int fd);

void put(int fd, std::shared_ptr<Socket> socket);
// Before the program's descriptor is closed, or becomes something else. In a child that shares our
// memory (vfork(2)) nothing is forgotten.
void forget(int fd);
void forget_range(unsigned first, unsigned last);

// False where there was never a socket, and in a child that shares our memory.
[[nodiscard]] bool table_is_ours();
// With the table locked.
[[nodiscard]] std::vector<std::shared_ptr<Socket>> all_sockets();
// Those whose bytes the kernel carries. With the table locked.
[[nodiscard]] std::vector<int> piped_descriptors();
// Those that listen, which are forgotten; for the child after fork(2). With the table locked.
[[nodiscard]] std::vector<std::pair<int, std::shared_ptr<Socket>>> take_listening();
// For fork(2).
void lock_table();
void unlock_table();

}  // namespace weft::interpose
