// Decodes the two messages of an RPC: headers, credentials, RPCSEC_GSS, NFS.
#pragma once

#include <vector>

#include "capture/rpc/message_reader.h"
#include "weft/capture/rpc.hpp"

namespace weft::capture {

struct ExchangeFaults {
  std::vector<LengthMismatch> lengths;  // of items in chunks
  std::size_t unused_chunks = 0;        // of a reply, with bytes that no item of the result claims
};

// Fills in what the header of the call says, as far as it came inline: enough to name the RPC.
void decode_header(Rpc& rpc);

// Fills in what the messages say. `rpc.call` and `rpc.reply` have their bytes already. The call
// comes first in every case: a reply means nothing without it.
ExchangeFaults decode_exchange(Rpc& rpc);

}  // namespace weft::capture
