// Decodes the two messages of an RPC: headers, credentials, RPCSEC_GSS and NFS.
#pragma once

#include <cstdint>
#include <optional>
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

// Returns the slot of a call of NFS 4.1 and later that begins with SEQUENCE, as far as the call
// came inline. Its header must be decoded.
[[nodiscard]] std::optional<NfsSession> session_of_call(const Rpc& rpc);
// Returns how many slots of the session the server wants to be used, by a reply that begins with
// the result of SEQUENCE (RFC 8881 §18.46.2). `rpc` is its call, and `reply` its inline part.
[[nodiscard]] std::optional<std::uint32_t> slots_of_reply(const Rpc& rpc, const Assembled& reply);

}  // namespace weft::capture
