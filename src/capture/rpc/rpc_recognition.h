// Recognises RPC-over-RDMA in Sends. Nothing on the wire names the protocol, and the payload of
// benchmarks may look like its header by chance. So a connection is recognised only by a message
// that is correct in every field that can be checked.
#pragma once

#include "base/bytes.h"
#include "wire/rpc_rdma.h"

namespace weft::capture {

// A cheap test of the first bytes of a message, of which more may follow.
[[nodiscard]] bool may_be_rpc_rdma(Bytes first_bytes);

// Tests a whole message: version 1, plausible credits, lists that end correctly, and an RPC header
// with the same XID that decodes (RDMA_MSG), or nothing but a chunk that can hold one (RDMA_NOMSG).
// Messages of the other types prove nothing.
[[nodiscard]] bool proves_rpc_rdma(const wire::RpcRdmaView& view);

}  // namespace weft::capture
