// The access of the peer to memory here that was refused, and ended the connection: for the checks
// of programs.
#pragma once

#include <cstdint>

#include "iwarp/host.h"
#include "wire/terminate.h"

namespace weft::device {

struct RefusedAccess {
  std::uint32_t stag = 0;  // 0: none was refused, or it is not known which
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = 0;
  iwarp::RemoteRight right = iwarp::RemoteRight::write;

  // What a Terminate of this side quotes (RFC 5040 §4.8).
  [[nodiscard]] static RefusedAccess quoted(const wire::Terminate& message);
};

}  // namespace weft::device
