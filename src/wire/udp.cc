#include "wire/udp.h"

namespace weft::wire {

Result<UdpHeader, WireError> UdpHeader::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const UdpHeader header{.source_port = load_be<std::uint16_t>(&bytes[0]),
                         .destination_port = load_be<std::uint16_t>(&bytes[2]),
                         .length_bytes = load_be<std::uint16_t>(&bytes[4]),
                         .checksum = load_be<std::uint16_t>(&bytes[6])};
  if (header.length_bytes != 0 && header.length_bytes < header_bytes) return WireError::bad_length;
  return header;
}

void UdpHeader::emit(MutableBytes out) const {
  store_be(&out[0], source_port);
  store_be(&out[2], destination_port);
  store_be(&out[4], length_bytes);
  store_be(&out[6], checksum);
}

}  // namespace weft::wire
