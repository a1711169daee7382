// Decodes arguments and results of NFS from the messages of an RPC.
#pragma once

#include <cstdint>

#include "capture/rpc/message_reader.h"
#include "weft/capture/nfs.hpp"

namespace weft::capture {

// The reader must be positioned after the RPC header. `procedure` is that of the call.
void decode_nfs3_call(MessageReader& in, std::uint32_t procedure, NfsExchange& exchange);
void decode_nfs3_reply(MessageReader& in, std::uint32_t procedure, NfsExchange& exchange);
void decode_nfs4_call(MessageReader& in, NfsExchange& exchange);
void decode_nfs4_reply(MessageReader& in, NfsExchange& exchange);

}  // namespace weft::capture
