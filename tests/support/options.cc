#include "support/options.h"

#include <algorithm>

namespace weft::test {

using iwarp::Connection;

Connection::Options roomy(bool initiator) {
  return {.initiator = initiator, .ird = 17, .wire_ord = 17, .ord = 16};
}

Connection::Options after_handshake(Connection::Options options,
                                    const iwarp::Negotiated& negotiated) {
  options.crc = negotiated.crc;
  options.send_markers = negotiated.send_markers;
  options.ird = negotiated.ird;
  options.wire_ord = negotiated.ord;
  options.ord = std::min(options.ord, negotiated.ord);
  options.rtr = negotiated.rtr;
  return options;
}

}  // namespace weft::test
