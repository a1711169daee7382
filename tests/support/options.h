// Options of the connections in tests.
#pragma once

#include "iwarp/connection.h"
#include "iwarp/handshake.h"

namespace weft::test {

// Options of a connection with large limits, without RTR frame and handshake.
[[nodiscard]] iwarp::Connection::Options roomy(bool initiator);
// The options that a device derives from the result of a handshake. `options.ord` is the
// application's value.
[[nodiscard]] iwarp::Connection::Options after_handshake(iwarp::Connection::Options options,
                                                         const iwarp::Negotiated& negotiated);

}  // namespace weft::test
