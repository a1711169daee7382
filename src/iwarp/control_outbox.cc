#include "iwarp/control_outbox.h"

#include <utility>

#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::iwarp {

// Each word is an RDMA Write of eight bytes (RFC 5040 §5.1) at the offset that names the word.
void ControlOutbox::build(Transmitter& out) {
  // In the order of the words' offsets: `executed` leaves before the others.
  const std::uint32_t due = std::exchange(due_, 0);
  for (std::uint8_t word = 0; word < wire::control_words; ++word) {
    if ((due & (1U << word)) == 0) continue;
    std::array<std::byte, wire::DdpTagged::header_bytes> header;
    wire::DdpTagged{
        .last = true,
        .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::write),
        .stag = stag_,
        .tagged_offset = wire::control_word_offset(static_cast<wire::ControlWord>(word))}
        .emit(header);
    out.add_own(header, wire::control_word_to_bytes(values_[word]));
  }
}

}  // namespace weft::iwarp
