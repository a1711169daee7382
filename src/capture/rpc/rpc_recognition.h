// Whether a Send is RPC-over-RDMA. Nothing on the wire says so, and payload of benchmarks may look
// like a header by chance; so a connection is believed to carry RPCs only after one message that is
// right in every field that can be checked.
#pragma once

#include "base/bytes.h"
#include "wire/rpc_rdma.h"

namespace weft::capture {

// Cheap, on the first bytes of a message of which more may follow.
[[nodiscard]] bool may_be_rpc_rdma(Bytes first_bytes);

// A whole message that proves it: version 1, credits that make sense, lists that end where they
// should, and an RPC header with the same XID that decodes (RDMA_MSG), or nothing but a chunk that
// can hold one (RDMA_NOMSG). The other types prove nothing.
[[nodiscard]] bool proves_rpc_rdma(const wire::RpcRdmaView& view);

}  // namespace weft::capture
