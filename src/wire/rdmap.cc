#include "wire/rdmap.h"

#include <cstring>

namespace weft::wire {

const char* describe(RdmapOpcode opcode) {
  switch (opcode) {
    case RdmapOpcode::write:
      return "RDMA Write";
    case RdmapOpcode::read_request:
      return "RDMA Read Request";
    case RdmapOpcode::read_response:
      return "RDMA Read Response";
    case RdmapOpcode::send:
      return "Send";
    case RdmapOpcode::send_invalidate:
      return "Send with Invalidate";
    case RdmapOpcode::send_solicited:
      return "Send with Solicited Event";
    case RdmapOpcode::send_solicited_invalidate:
      return "Send with Solicited Event and Invalidate";
    case RdmapOpcode::terminate:
      return "Terminate";
    case RdmapOpcode::immediate_data:
      return "Immediate Data";
    case RdmapOpcode::immediate_data_solicited:
      return "Immediate Data with Solicited Event";
    case RdmapOpcode::atomic_request:
      return "Atomic Request";
    case RdmapOpcode::atomic_response:
      return "Atomic Response";
  }
  return "unknown opcode";
}

Result<AtomicRequest, WireError> AtomicRequest::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  // RFC 7306 §5.2.1: 28 reserved bits, to be ignored, precede the four of the code.
  const auto code = load_be<std::uint32_t>(&bytes[0]) & 0x0F;
  return AtomicRequest{.opcode = static_cast<AtomicOpcode>(code),
                       .request_id = load_be<std::uint32_t>(&bytes[4]),
                       .stag = load_be<std::uint32_t>(&bytes[8]),
                       .tagged_offset = load_be<std::uint64_t>(&bytes[12]),
                       .add_or_swap = load_be<std::uint64_t>(&bytes[20]),
                       .add_or_swap_mask = load_be<std::uint64_t>(&bytes[28]),
                       .compare = load_be<std::uint64_t>(&bytes[36]),
                       .compare_mask = load_be<std::uint64_t>(&bytes[44])};
}

void AtomicRequest::emit(MutableBytes out) const {
  store_be(&out[0], static_cast<std::uint32_t>(opcode) & 0x0F);
  store_be(&out[4], request_id);
  store_be(&out[8], stag);
  store_be(&out[12], tagged_offset);
  store_be(&out[20], add_or_swap);
  store_be(&out[28], add_or_swap_mask);
  store_be(&out[36], compare);
  store_be(&out[44], compare_mask);
}

Result<AtomicResponse, WireError> AtomicResponse::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  return AtomicResponse{.request_id = load_be<std::uint32_t>(&bytes[0]),
                        .original_value = load_be<std::uint64_t>(&bytes[4])};
}

void AtomicResponse::emit(MutableBytes out) const {
  store_be(&out[0], request_id);
  store_be(&out[4], original_value);
}

Result<ImmediateData, WireError> ImmediateData::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  ImmediateData immediate;
  std::memcpy(&immediate.data_be, &bytes[0], sizeof immediate.data_be);
  immediate.tag = load_be<std::uint32_t>(&bytes[4]);
  return immediate;
}

void ImmediateData::emit(MutableBytes out) const {
  std::memcpy(&out[0], &data_be, sizeof data_be);
  store_be(&out[4], tag);
}

}  // namespace weft::wire
