#include "iwarp/control_outbox.h"

#include <bit>
#include <utility>

#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::iwarp {

// Each word is an RDMA Write of eight bytes (RFC 5040 §5.1) at the offset that names the word.
void ControlOutbox::build(Transmitter& out) {
  // In the order of the words' offsets: `executed` leaves before the others.
  for (std::uint32_t due = std::exchange(due_, 0); due != 0; due &= due - 1) {
    const int word = std::countr_zero(due);
    std::array<std::byte, wire::DdpTagged::header_bytes> header;
    wire::DdpTagged{
        .last = true,
        .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::write),
        .stag = stag_,
        .tagged_offset = wire::control_word_offset(static_cast<wire::ControlWord>(word))}
        .emit(header);
    out.add_own(header, wire::control_word_to_bytes(values_[static_cast<std::size_t>(word)]));
  }
}

}  // namespace weft::iwarp
