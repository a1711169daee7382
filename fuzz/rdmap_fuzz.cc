// RDMAP. The input is a control byte and the payload of the message that it announces.
#include "fuzz/fuzz.h"
#include "wire/rdmap.h"

namespace weft::fuzz {
namespace {

void check_payload(wire::RdmapOpcode opcode, Bytes payload) {
  switch (opcode) {
    case wire::RdmapOpcode::read_request:
      return require_stable_parse<wire::ReadRequest>(payload);
    case wire::RdmapOpcode::immediate_data:
    case wire::RdmapOpcode::immediate_data_solicited:
      return require_stable_parse<wire::ImmediateData>(payload);
    case wire::RdmapOpcode::atomic_request:
      return require_stable_parse<wire::AtomicRequest>(payload);
    case wire::RdmapOpcode::atomic_response:
      return require_stable_parse<wire::AtomicResponse>(payload);
    default:
      return;
  }
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  if (size == 0) return 0;
  const auto opcode = wire::rdmap_opcode(data[0]);
  fuzz::require(*wire::describe(opcode) != '\0');
  fuzz::require(wire::rdmap_opcode(wire::rdmap_control(opcode)) == opcode);
  fuzz::check_payload(opcode, fuzz::input_bytes(data, size).subspan(1));
  return 0;
}
