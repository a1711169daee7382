// Ethernet II: two addresses and a type. What follows, tags included, is for wire/link.cc.
#include "wire/ethernet.h"

namespace weft::wire {

namespace at = field::ethernet;

Result<EthernetHeader, WireError> EthernetHeader::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  return EthernetHeader{.destination = at::destination.load(bytes.data()),
                        .source = at::source.load(bytes.data()),
                        .type = EtherType{at::type.load(bytes.data())}};
}

// No frame check sequence: the captures of this format have none.
void EthernetHeader::emit(MutableBytes out) const {
  at::destination.store(out.data(), destination);
  at::source.store(out.data(), source);
  at::type.store(out.data(), static_cast<std::uint16_t>(type));
}

}  // namespace weft::wire
