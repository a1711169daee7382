#include "wire/ethernet.h"

#include <cstring>

namespace weft::wire {

Result<EthernetHeader, WireError> EthernetHeader::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  EthernetHeader header;
  std::memcpy(header.destination.data(), bytes.data(), 6);
  std::memcpy(header.source.data(), bytes.data() + 6, 6);
  header.type = EtherType{load_be<std::uint16_t>(bytes.data() + 12)};
  return header;
}

void EthernetHeader::emit(MutableBytes out) const {
  std::memcpy(out.data(), destination.data(), 6);
  std::memcpy(out.data() + 6, source.data(), 6);
  store_be(out.data() + 12, static_cast<std::uint16_t>(type));
}

}  // namespace weft::wire
