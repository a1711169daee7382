// The sockets that the device has opened in this process and not yet closed.
//
// Most of them have an owner that the child of fork(2) can find. A socket on its way from one owner
// to the next has none, for example a connection whose handshake is just over. A child that kept
// its copy would hold the connection open after the end of the parent, so that the peer never
// learns of it.
#pragma once

namespace weft::own_sockets {

// Both are safe in several threads. A socket is removed before it is closed, because another thread
// may get its number at once. A fork between a system call and its call here leaves the child a
// copy, as everything does that another thread opens at the moment of the fork.
// A program must not close descriptors of the device by itself, by closefrom(3) for example: their
// numbers stay here, and a child would close what the program has opened under them since.
void add(int fd);
void remove(int fd);

// In the child after fork(): closes the copies of all that were not removed.
void close_after_fork();

}  // namespace weft::own_sockets
