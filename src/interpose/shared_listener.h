// A listening socket that several processes have. O_NONBLOCK belongs to the open file that they
// share, so a call that must never block sets it for a moment. Meanwhile it has a lock on the
// socket (fcntl(2), F_SETLKW), by which other processes under this library know that the program
// has not set it.
#pragma once

#include "interpose/descriptor.h"

namespace weft::interpose {

// accept(2) that never blocks, although another process may take the client that was seen. Not
// valid on an error, with errno.
[[nodiscard]] Descriptor accept_at_once(int kernel);
// Whether accept(2) of the program blocks.
[[nodiscard]] bool listener_blocks(int kernel);
void set_listener_blocking(int kernel, bool blocks);
// After accept(2) has failed with EAGAIN on a socket that blocks: whether that was not the
// program's timeout, but another process in accept_at_once().
[[nodiscard]] bool was_disturbed(int kernel);

// Around fork(2): no thread is in accept_at_once() meanwhile.
void shared_listener_before_fork();
void shared_listener_after_fork();

}  // namespace weft::interpose
