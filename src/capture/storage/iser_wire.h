// Decodes iSCSI PDUs in iSER messages (RFC 7145, RFC 7143).
#pragma once

#include "capture/storage/storage_message.h"

namespace weft::capture {

// Whether the message is an iSCSI PDU with an iSER header, as far as its fields show.
[[nodiscard]] bool is_iser(const StorageBytes& message);
// Decodes a message, and counts it.
[[nodiscard]] StorageMessage decode_iser(const StorageBytes& message, MessageCounts& counts);

}  // namespace weft::capture
