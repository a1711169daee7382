// Decodes arguments and results of NFS from the messages of an RPC.
#pragma once

#include <cstdint>

#include "capture/rpc/message_reader.h"
#include "weft/capture/nfs.hpp"
#include "wire/xdr.h"

namespace weft::capture {

// The reader must be positioned after the RPC header. `procedure` is that of the call.
void decode_nfs3_call(MessageReader& in, std::uint32_t procedure, NfsExchange& exchange);
void decode_nfs3_reply(MessageReader& in, std::uint32_t procedure, NfsExchange& exchange);
void decode_nfs4_call(MessageReader& in, NfsExchange& exchange);
void decode_nfs4_reply(MessageReader& in, NfsExchange& exchange);
// The first four arguments of SEQUENCE (RFC 8881 §18.46) and of CB_SEQUENCE (§20.9).
[[nodiscard]] NfsSession decode_session(wire::XdrReader& in);

}  // namespace weft::capture
