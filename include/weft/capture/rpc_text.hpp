// What a line of a report says about an RPC.
#pragma once

#include <string>

#include "weft/capture/rpc.hpp"
#include "weft/export.hpp"

namespace weft::capture {

// How it ended: "OK", "NFS3ERR_NOENT", "no reply", "RDMA_ERROR", "program unavailable".
[[nodiscard]] WEFT_API std::string outcome_text(const Rpc& rpc);
// Answered, and every status in the reply is good.
[[nodiscard]] WEFT_API bool succeeded(const Rpc& rpc);
// "READ "f0" 4096 B at 0": the operations that name something, in order. Empty where there are
// none.
[[nodiscard]] WEFT_API std::string detail_text(const Rpc& rpc);
[[nodiscard]] WEFT_API std::string detail_text(const NfsOperation& operation);

}  // namespace weft::capture
