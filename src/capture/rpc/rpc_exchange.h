// Decodes the two messages of an RPC: headers, credentials, RPCSEC_GSS and NFS.
#pragma once

#include <vector>

#include "capture/rpc/message_reader.h"
#include "weft/capture/rpc.hpp"

namespace weft::capture {

struct ExchangeFaults {
  std::vector<LengthMismatch> lengths;  // items in chunks of another length
  std::size_t unused_chunks = 0;  // chunks of a reply with bytes that no item of the result uses
};

// Decodes the header of the call, as far as it came inline: enough to name the RPC.
void decode_header(Rpc& rpc);

// Decodes both messages; their bytes are in `rpc.call` and `rpc.reply`. The call is decoded first,
// because a reply cannot be decoded without it.
ExchangeFaults decode_exchange(Rpc& rpc);

}  // namespace weft::capture
