// Descriptors of the device at high numbers, out of the way of a program whose own ones it serves:
// some programs have tables that are as long as the number of their connections.
#pragma once

namespace weft::device::sys {

// From now on descriptors that exist once for each connection get numbers from `first` on, if there
// are any. That takes two more system calls for each. 0: they are where the kernel puts them.
void set_descriptor_floor(int first);
// Moves `fd` there. Where no high number is free, or none is wanted, returns `fd` itself.
[[nodiscard]] int moved_high(int fd);

}  // namespace weft::device::sys
