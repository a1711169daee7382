#include "base/crc32.h"

#if defined(WEFT_ISAL)
#include <isa-l/crc.h>

#include "base/vector_registers.h"
#else
#include "base/crc_table.h"
#endif

namespace weft {

#if defined(WEFT_ISAL)
void Crc32::update(Bytes bytes) {
  // ISA-L inverts before and after by itself.
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  value_ = crc32_gzip_refl(value_, data, bytes.size());
  tidy_vector_registers();
}
#else
void Crc32::update(Bytes bytes) {
  // The polynomial 0x04C11DB7 of IEEE 802.3 with its bits in reverse order. Between calls `value_`
  // is the inverted state, as ISA-L has it.
  static constexpr CrcTable table(0xEDB88320);
  value_ = ~table.update(~value_, bytes);
}
#endif

std::uint32_t crc32(Bytes bytes) {
  Crc32 crc;
  crc.update(bytes);
  return crc.value();
}

}  // namespace weft
