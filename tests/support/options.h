// Options of the connections that tests make.
#pragma once

#include "iwarp/connection.h"
#include "iwarp/handshake.h"

namespace weft::test {

// Options of a connection with room for everything, without RTR and handshake.
[[nodiscard]] iwarp::Connection::Options roomy(bool initiator);
// What a device makes of the outcome of a handshake. `options.ord` is what the application asks
// for.
[[nodiscard]] iwarp::Connection::Options after_handshake(iwarp::Connection::Options options,
                                                         const iwarp::Negotiated& negotiated);

}  // namespace weft::test
