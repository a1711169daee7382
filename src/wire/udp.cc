#include "wire/udp.h"

namespace weft::wire {

namespace at = field::udp;

Result<UdpHeader, WireError> UdpHeader::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const std::byte* header = bytes.data();
  const UdpHeader parsed{.source_port = at::source_port.load(header),
                         .destination_port = at::destination_port.load(header),
                         .length_bytes = at::length_bytes.load(header),
                         .checksum = at::checksum.load(header)};
  // 0 means a length beyond 16 bits (RFC 2675 §4), and occurs in captures on hosts with
  // segmentation offload.
  if (parsed.length_bytes != 0 && parsed.length_bytes < header_bytes) return WireError::bad_length;
  return parsed;
}

void UdpHeader::emit(MutableBytes out) const {
  std::byte* header = out.data();
  at::source_port.store(header, source_port);
  at::destination_port.store(header, destination_port);
  at::length_bytes.store(header, length_bytes);
  at::checksum.store(header, checksum);
}

void store_udp_checksum(MutableBytes header, std::uint16_t checksum) {
  // RFC 768: a checksum that is computed as zero is sent as all ones, because zero means none.
  at::checksum.store(header.data(), checksum == 0 ? 0xFFFF : checksum);
}

}  // namespace weft::wire
