#include "base/crc32.h"

#include <isa-l/crc.h>

#include "base/vector_registers.h"

namespace weft {

void Crc32::update(Bytes bytes) {
  // ISA-L inverts before and after by itself.
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  value_ = crc32_gzip_refl(value_, data, bytes.size());
  tidy_vector_registers();
}

std::uint32_t crc32(Bytes bytes) {
  Crc32 crc;
  crc.update(bytes);
  return crc.value();
}

}  // namespace weft
