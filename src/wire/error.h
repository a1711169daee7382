// The reason why a codec rejects bytes. Codecs never throw and never read past their span.
#pragma once

#include <cstdint>

namespace weft::wire {

enum class WireError : std::uint8_t {
  truncated,     // fewer bytes than the format needs
  bad_key,       // MPA: neither a request nor a reply
  bad_revision,  // MPA: a revision other than 1 and 2
  bad_length,    // a length field outside its range
  bad_version,   // a version that the codec does not support
  wrong_model,   // tagged where untagged was expected, or the reverse
  bad_marker,    // MPA: a marker that does not point back to the start of its FPDU
  bad_value,     // a field with a value that the protocol does not define
};

[[nodiscard]] const char* describe(WireError error);

}  // namespace weft::wire
