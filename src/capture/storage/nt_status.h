// Names of status codes of SMB (MS-ERREF §2.3).
#pragma once

#include <cstdint>
#include <string>

namespace weft::capture {

// Returns "OK", "STATUS_ACCESS_DENIED", or the code in hexadecimal if it has no name here.
[[nodiscard]] std::string nt_status_text(std::uint32_t status);
// Whether the command has failed. Some codes with the severity of an error belong to the usual
// course: a logon that needs another message.
[[nodiscard]] bool is_nt_failure(std::uint32_t status);
// Whether this is an interim answer: STATUS_PENDING.
[[nodiscard]] bool is_nt_pending(std::uint32_t status);

}  // namespace weft::capture
