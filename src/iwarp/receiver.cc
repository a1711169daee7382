#include "iwarp/receiver.h"

#include "iwarp/fault_codes.h"
#include "iwarp/scatter.h"

namespace weft::iwarp {
namespace {

using wire::RdmapOpcode;

bool is_solicited(RdmapOpcode opcode) {
  return opcode == RdmapOpcode::send_solicited ||
         opcode == RdmapOpcode::send_solicited_invalidate ||
         opcode == RdmapOpcode::immediate_data_solicited;
}

bool invalidates(RdmapOpcode opcode) {
  return opcode == RdmapOpcode::send_invalidate || opcode == RdmapOpcode::send_solicited_invalidate;
}

}  // namespace

// RFC 5041 §5.2, §7: STag, stream, bounds and wrap-around, before the first byte lands.
TerminateRaised Receiver::check_write(const Segment& segment) {
  if (segment.payload_bytes == 0) return std::nullopt;  // RFC 5040 §5.1: names no memory
  const auto& header = segment.tagged_header;
  const Memory memory = host_.remote_memory(header.stag, header.tagged_offset,
                                            segment.payload_bytes, RemoteRight::write);
  if (memory.fault == Fault::none) return std::nullopt;
  return tagged_code(memory.fault);
}

TerminateRaised Receiver::write_targets(const Segment& segment, std::uint32_t offset,
                                        std::uint32_t length, std::vector<iovec>& out) {
  const auto& header = segment.tagged_header;
  const Memory memory =
      host_.remote_memory(header.stag, header.tagged_offset + offset, length, RemoteRight::write);
  if (memory.fault != Fault::none) return tagged_code(memory.fault);
  out.push_back({memory.at, length});
  return std::nullopt;
}

void Receiver::deliver_write(const Segment& segment) {
  if (!write_open_) write_bytes_ = 0;
  write_bytes_ += segment.payload_bytes;
  write_open_ = !segment.last();
}

// RFC 5041 §5.3, §8: queue 0 takes messages in order, their segments without a gap.
TerminateRaised Receiver::check_send(const Segment& segment) {
  const auto& header = segment.untagged_header;
  if (header.msn != expected_msn_) return wire::terminate::untagged_msn_range;
  if (header.message_offset != expected_offset_) return wire::terminate::untagged_invalid_offset;
  if (header.message_offset == 0 && !taken_) {
    if (const auto raised = begin_message(segment)) return raised;
  }
  if (expected_offset_ + segment.payload_bytes > capacity_bytes_) {
    return fail_receive(Status::local_length, wire::terminate::untagged_too_long);
  }
  return std::nullopt;
}

TerminateRaised Receiver::begin_message(const Segment& /*segment*/) {
  if (!host_.next_receive(current_)) return wire::terminate::untagged_no_buffer;
  taken_ = true;
  capacity_bytes_ = total_bytes(current_.slices);
  return std::nullopt;
}

TerminateRaised Receiver::fail_receive(Status status, wire::TerminateCode code) {
  taken_ = false;
  host_.complete_receive({.wr_id = current_.wr_id, .status = status});
  return code;
}

TerminateRaised Receiver::send_targets(const Segment& segment, std::uint32_t offset,
                                       std::uint32_t length, std::vector<iovec>& out) {
  const Fault fault =
      map_slices(host_, current_.slices,
                 segment.untagged_header.message_offset + std::uint64_t{offset}, length, true, out);
  if (fault == Fault::none) return std::nullopt;
  // Our own application posted memory that it may not use: not the peer's fault.
  return fail_receive(Status::local_protection, wire::terminate::rdma_stream_catastrophic);
}

TerminateRaised Receiver::deliver_send(const Segment& segment) {
  expected_offset_ += segment.payload_bytes;
  if (!segment.last()) return std::nullopt;
  ReceiveCompletion completion{.wr_id = current_.wr_id,
                               .length_bytes = static_cast<std::uint32_t>(expected_offset_),
                               .solicited = is_solicited(segment.opcode)};
  if (invalidates(segment.opcode)) {
    const std::uint32_t stag = segment.untagged_header.invalidate_stag;
    if (!host_.invalidate(stag)) {  // RFC 5040 §5.3
      return fail_receive(Status::local_operation, wire::terminate::rdma_cannot_invalidate);
    }
    completion.has_invalidated = true;
    completion.invalidated_rkey = stag;
  }
  complete(completion);
  return std::nullopt;
}

TerminateRaised Receiver::immediate(const Segment& segment, const wire::ImmediateData& immediate) {
  const auto& header = segment.untagged_header;
  if (header.msn != expected_msn_) return wire::terminate::untagged_msn_range;
  // A Send with this MSN may be under way: it holds the receive, and this is none of its segments.
  if (header.message_offset != 0 || !segment.last() || taken_) {
    return wire::terminate::untagged_invalid_offset;
  }
  if (const auto raised = begin_message(segment)) return raised;
  complete({.wr_id = current_.wr_id,
            .length_bytes = static_cast<std::uint32_t>(write_bytes_),
            .solicited = is_solicited(segment.opcode),
            .from_write = true,
            .has_immediate = true,
            .immediate_be = immediate.data_be});
  write_bytes_ = 0;
  return std::nullopt;
}

void Receiver::complete(ReceiveCompletion completion) {
  taken_ = false;
  expected_offset_ = 0;
  ++expected_msn_;
  host_.complete_receive(completion);
}

void Receiver::flush(Status status) {
  if (!taken_) return;
  taken_ = false;
  host_.complete_receive({.wr_id = current_.wr_id, .status = status});
}

}  // namespace weft::iwarp
