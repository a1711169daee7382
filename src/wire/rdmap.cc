#include "wire/rdmap.h"

#include <cstring>

namespace weft::wire {

namespace field::atomic_request {
constexpr Field32 opcode{0};  // 28 reserved bits, then the code
constexpr Field32 request_id{opcode.end()};
constexpr Field32 stag{request_id.end()};
constexpr Field64 tagged_offset{stag.end()};
constexpr Field64 add_or_swap{tagged_offset.end()};
constexpr Field64 add_or_swap_mask{add_or_swap.end()};
constexpr Field64 compare{add_or_swap_mask.end()};
constexpr Field64 compare_mask{compare.end()};
static_assert(compare_mask.end() == AtomicRequest::header_bytes);
}  // namespace field::atomic_request

namespace field::atomic_response {
constexpr Field32 request_id{0};
constexpr Field64 original_value{request_id.end()};
static_assert(original_value.end() == AtomicResponse::header_bytes);
}  // namespace field::atomic_response

namespace field::immediate_data {
constexpr Field32 data{0};
constexpr Field32 tag{data.end()};
static_assert(tag.end() == ImmediateData::header_bytes);
}  // namespace field::immediate_data

namespace {

// The mask is applied in both directions, so that the reserved bits are sent as zero.
constexpr std::uint32_t atomic_opcode_mask = 0x0F;

}  // namespace

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

// RFC 7306 §5.2.1: the receiver ignores the 28 reserved bits before the four of the code.
Result<AtomicRequest, WireError> AtomicRequest::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::atomic_request;
  const std::byte* header = bytes.data();
  return AtomicRequest{
      .opcode = static_cast<AtomicOpcode>(at::opcode.load(header) & atomic_opcode_mask),
      .request_id = at::request_id.load(header),
      .stag = at::stag.load(header),
      .tagged_offset = at::tagged_offset.load(header),
      .add_or_swap = at::add_or_swap.load(header),
      .add_or_swap_mask = at::add_or_swap_mask.load(header),
      .compare = at::compare.load(header),
      .compare_mask = at::compare_mask.load(header)};
}

void AtomicRequest::emit(MutableBytes out) const {
  namespace at = field::atomic_request;
  std::byte* header = out.data();
  at::opcode.store(header, static_cast<std::uint32_t>(opcode) & atomic_opcode_mask);
  at::request_id.store(header, request_id);
  at::stag.store(header, stag);
  at::tagged_offset.store(header, tagged_offset);
  at::add_or_swap.store(header, add_or_swap);
  at::add_or_swap_mask.store(header, add_or_swap_mask);
  at::compare.store(header, compare);
  at::compare_mask.store(header, compare_mask);
}

Result<AtomicResponse, WireError> AtomicResponse::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::atomic_response;
  return AtomicResponse{.request_id = at::request_id.load(bytes.data()),
                        .original_value = at::original_value.load(bytes.data())};
}

void AtomicResponse::emit(MutableBytes out) const {
  namespace at = field::atomic_response;
  at::request_id.store(out.data(), request_id);
  at::original_value.store(out.data(), original_value);
}

// The first four bytes are the immediate exactly as the application gave it: they are copied and
// not converted.
Result<ImmediateData, WireError> ImmediateData::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::immediate_data;
  ImmediateData immediate;
  std::memcpy(&immediate.data_be, bytes.data() + at::data.at, sizeof immediate.data_be);
  immediate.tag = at::tag.load(bytes.data());
  return immediate;
}

void ImmediateData::emit(MutableBytes out) const {
  namespace at = field::immediate_data;
  std::memcpy(out.data() + at::data.at, &data_be, sizeof data_be);
  at::tag.store(out.data(), tag);
}

}  // namespace weft::wire
