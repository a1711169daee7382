// Descriptors of this library, at numbers that programs do not get.
#pragma once

#include "base/descriptor.h"
#include "interpose/next.h"

namespace weft::interpose {

// Closes by the function that the descriptor was made with: another preloaded library may keep
// account of sockets.
struct CloseByNext {
  void operator()(int fd) const noexcept { next::close(fd); }
};
using Descriptor = OwnedDescriptor<CloseByNext>;

// Moves a descriptor to a high number, so that programs get the low ones: select(2) works only up
// to 1023, and some have tables as long as the number of their connections. Returns `low` itself if
// no high number is free.
[[nodiscard]] Descriptor move_high(Descriptor low);
// The first number that counts as high.
[[nodiscard]] int least_high_descriptor();
// Duplicates `fd` to a high number, close-on-exec. Throws Error.
[[nodiscard]] Descriptor copy_high(int fd);
// Clears or sets O_NONBLOCK, which all duplicates of `fd` share, those of other processes too.
void set_blocking(int fd, bool blocks);
// Not reliable for files without a name and data, such as epoll sets: all of them are one.
[[nodiscard]] bool is_same_file(int first, int second);
// Ends a TCP connection now, even if another process has a copy of the descriptor.
void shut(const Descriptor& connection);

}  // namespace weft::interpose
