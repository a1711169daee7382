// Maps descriptors of the program to their sockets. Thread-safe.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "interpose/socket.h"

namespace weft::interpose {

// Null if the descriptor is no stream socket, which costs one load.
[[nodiscard]] std::shared_ptr<Socket> find(int fd);
// The same, but null also for a relayed socket, whose calls are the kernel's.
[[nodiscard]] std::shared_ptr<Socket> find_stream(int fd);

// The program has added this descriptor to an epoll set, and Socket::note_epoll_set() was called.
// Programs change what they wait for with each message, so this costs one load.
[[nodiscard]] bool is_in_epoll_set(int fd);
void note_epoll_set(int fd, const Socket& socket);

void put(int fd, std::shared_ptr<Socket> socket);
// Removes an entry, before the program's descriptor is closed or replaced. No effect in a child
// that shares the parent's memory (vfork(2)).
void forget(int fd);
void forget_range(unsigned first, unsigned last);
// The program closes what may be an epoll set.
void forget_set(int fd);

// False if there was never a socket, and in a child that shares the parent's memory (vfork(2)).
[[nodiscard]] bool owns_table();
// --- With the table locked
[[nodiscard]] std::vector<std::pair<int, std::shared_ptr<Socket>>> all_entries();
[[nodiscard]] std::vector<std::shared_ptr<Socket>> all_sockets();
// Descriptors whose bytes the kernel carries.
[[nodiscard]] std::vector<int> relayed_descriptors();
// Removes and returns the listeners, for the child after fork(2).
[[nodiscard]] std::vector<std::pair<int, std::shared_ptr<Socket>>> take_listeners();
// Around fork(2): unlocked in both processes. The child owns its copy from then on.
void lock_table();
void unlock_table();
// For a process that does not own the table: another thread may have had the lock when clone(2) has
// made this one, which waits only briefly therefore.
[[nodiscard]] bool lock_table_of_parent();
void unlock_table_of_parent();

}  // namespace weft::interpose
