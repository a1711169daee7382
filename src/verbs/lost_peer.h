// Whether an operation failed because its peer is gone.
#pragma once

#include <cerrno>

namespace weft::verbs::detail {

// Of the errors that accepting a connection ends with: the peer has disconnected meanwhile, and the
// next one may be accepted. All others concern this program.
inline bool is_lost_peer(int error_number) {
  return error_number == ECONNRESET || error_number == ECONNABORTED || error_number == ENOTCONN ||
         error_number == EPIPE || error_number == ETIMEDOUT;
}

}  // namespace weft::verbs::detail
