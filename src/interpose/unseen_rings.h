// An io_uring that the program has made by a system call of its own, so that it could not be
// refused (calls_asynchronous.cc): liburing does so where it is linked statically.
#pragma once

namespace weft::interpose {

// True from the moment when such a ring was found. Looks at the program's lowest descriptors, at
// each at most once a second. The kernel carries the bytes of all connections from then on, because
// requests of the ring are not seen: those that exist are relayed by this call.
[[nodiscard]] bool has_ring();

}  // namespace weft::interpose
