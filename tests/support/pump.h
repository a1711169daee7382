// Moves bytes in and out of a connection as a device does with a socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "iwarp/connection.h"

namespace weft::test {

// Reads `bytes` into the places that the connection plans, in one or more reads. Returns the number
// of bytes consumed: all, unless the stream has ended before. `now_ns`: when they arrive.
std::size_t feed(iwarp::Connection& connection, Bytes bytes, std::uint64_t now_ns = 0);

// The next output, at most `most` bytes; it is not removed from the connection.
[[nodiscard]] std::vector<std::byte> peek(iwarp::Connection& connection,
                                          std::size_t most = SIZE_MAX);

// All pending output of the connection.
[[nodiscard]] std::vector<std::byte> drain(iwarp::Connection& connection);

}  // namespace weft::test
