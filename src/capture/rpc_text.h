// What a line of a report says about an RPC.
#pragma once

#include <string>

#include "capture/rpc.h"

namespace weft::capture {

// How it ended: "OK", "NFS3ERR_NOENT", "no reply", "RDMA_ERROR", "program unavailable".
[[nodiscard]] std::string outcome_text(const Rpc& rpc);
[[nodiscard]] bool succeeded(const Rpc& rpc);
// "READ "f0" 4096 B at 0": the operations that name something, in order. Empty where there are
// none.
[[nodiscard]] std::string detail_text(const Rpc& rpc);
[[nodiscard]] std::string detail_text(const NfsOperation& operation);

}  // namespace weft::capture
