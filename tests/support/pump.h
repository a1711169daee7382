// Moves bytes in and out of a connection, as a device does with a socket.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "iwarp/connection.h"

namespace weft::test {

// Reads `bytes` into the places that the connection plans, as one or more reads. Returns how many
// it took: all, unless the stream ended before.
std::size_t feed(iwarp::Connection& connection, Bytes bytes);

// What goes out next, at most `most` bytes; not yet taken off the connection.
[[nodiscard]] std::vector<std::byte> peek(iwarp::Connection& connection,
                                          std::size_t most = SIZE_MAX);

// All that the connection has to send.
[[nodiscard]] std::vector<std::byte> drain(iwarp::Connection& connection);

}  // namespace weft::test
