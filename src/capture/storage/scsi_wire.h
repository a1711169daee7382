// Decodes what iSER and SRP carry: SCSI commands, statuses and sense data (SPC-4, SBC-3).
#pragma once

#include <cstdint>
#include <string>

#include "capture/storage/storage_message.h"

namespace weft::capture {

// Sets the name and the blocks of `command` from its descriptor block (CDB).
void decode_cdb(Bytes cdb, StorageCommand& command);
// Sets the logical unit from the eight bytes of a LUN (SAM-5 §4.7).
void decode_lun(Bytes lun, StorageCommand& command);
// Returns "OK", "BUSY", or "ILLEGAL REQUEST 24/00" from the sense data of a CHECK CONDITION.
[[nodiscard]] std::string scsi_status_text(std::uint8_t status, Bytes sense);

}  // namespace weft::capture
