// Decodes the information units of SRP (INCITS 365-2002, with the immediate data of Linux).
#pragma once

#include "capture/storage/storage_message.h"

namespace weft::capture {

// Whether the message is an SRP command, as far as its fields show. No other information unit has
// enough of them.
[[nodiscard]] bool is_srp_command(const StorageBytes& message);
// Decodes a message, and counts it.
[[nodiscard]] StorageMessage decode_srp(const StorageBytes& message, MessageCounts& counts);

}  // namespace weft::capture
