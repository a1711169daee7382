// What this library needs of the device beyond the interface of streams.
#pragma once

#include "weft/stream/listener.hpp"

namespace weft::interpose {

// Whether requests of processes of this host for the listening socket that `listener` has adopted
// may come without TCP: see provider/host_requests.h. Errors are ignored, because TCP remains.
void serve_host(const stream::Listener& listener, bool serves);

// Makes the device and starts the threads that streams need: the process can start none later.
// Throws std::system_error or weft::Error where that is refused already.
void start_threads();

}  // namespace weft::interpose
