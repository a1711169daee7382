// The texts with which reports describe an RPC.
#pragma once

#include <string>

#include "weft/capture/rpc.hpp"
#include "weft/export.hpp"

namespace weft::capture {

// Returns how the RPC ended: "OK", "NFS3ERR_NOENT", "no reply", "RDMA_ERROR", "program
// unavailable".
[[nodiscard]] WEFT_API std::string outcome_text(const Rpc& rpc);
// Returns whether there is a reply and every status in it is success.
[[nodiscard]] WEFT_API bool succeeded(const Rpc& rpc);
// Returns for example "READ "f0" 4096 B at 0": the operations with names, ranges or sizes, in
// order. Empty if there are none.
[[nodiscard]] WEFT_API std::string detail_text(const Rpc& rpc);
[[nodiscard]] WEFT_API std::string detail_text(const NfsOperation& operation);

}  // namespace weft::capture
