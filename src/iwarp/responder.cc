#include "iwarp/responder.h"

#include <algorithm>
#include <array>

#include "base/guarded_memory.h"
#include "iwarp/fault_codes.h"

namespace weft::iwarp {
namespace {

constexpr std::uint64_t all_ones = ~std::uint64_t{0};

// RFC 7306 §5.1: bits are compared only where the mask is one.
bool compares(const wire::AtomicRequest& request) {
  return request.opcode != wire::AtomicOpcode::compare_swap || request.compare_mask != 0;
}

// Only the forms that verbs can ask for are offered, not all masks of RFC 7306 §5.1.
bool offered(const wire::AtomicRequest& request) {
  switch (request.opcode) {
    case wire::AtomicOpcode::fetch_add:
      return request.add_or_swap_mask == 0;
    case wire::AtomicOpcode::compare_swap:
      return request.add_or_swap_mask == all_ones &&
             (request.compare_mask == all_ones || !compares(request));
  }
  return false;
}

// Atomic also with respect to the CPU and to every other connection of this process.
GuardedAtomic step(const wire::AtomicRequest& request) {
  GuardedAtomic atomic{.operand = request.add_or_swap, .expected = request.compare};
  if (request.opcode == wire::AtomicOpcode::compare_swap) {
    atomic.operation =
        compares(request) ? AtomicOperation::compare_exchange : AtomicOperation::exchange;
  }
  return atomic;
}

}  // namespace

TerminateRaised Responder::enqueue(Request request) {
  // RFC 5040 §3.3 and RFC 6581 §9: there is no buffer for more than IRD requests at a time.
  // The initiator knows the IRD from the handshake, so more requests are its fault.
  if (queue_.size() >= options_.ird) return wire::terminate::untagged_no_buffer;
  queue_.push_back(request);
  return std::nullopt;
}

// Nothing is checked here: the rights that count are those at the time of the answer.
TerminateRaised Responder::take_read(const Segment& segment, const wire::ReadRequest& request,
                                     Place place) {
  return enqueue({.place = place, .read = request, .segment = segment});
}

TerminateRaised Responder::take_atomic(const Segment& segment, const wire::AtomicRequest& request,
                                       Place place) {
  return enqueue({.atomic = true, .place = place, .operands = request, .segment = segment});
}

// RFC 5040 §4.8: a Terminate for a read quotes its DDP and its RDMAP header.
void Responder::report(const Request& request) {
  fault_report_ = {};
  fault_report_.ddp_segment_bytes = request.segment.ulpdu_bytes();
  fault_report_.ddp_header_bytes = request.segment.header_bytes();
  fault_report_.ddp_header = request.segment.raw_header;
  fault_report_.has_read_request = !request.atomic;
  fault_report_.read_request = request.read;
  fault_number_ = request.place.number;
}

bool Responder::build(TerminateRaised& refusal, std::uint64_t placed) {
  if (!may_build(placed)) return false;
  Request& oldest = queue_.front();
  refusal = oldest.atomic ? answer_atomic(oldest) : answer_read(oldest);
  if (refusal) {
    report(oldest);
    // The stream ends, so later requests get no answer.
    queue_.clear();
    return true;
  }
  // A started answer continues with the next call, and no other message may come between (RFC 5041
  // §5.3).
  if (!oldest.started) queue_.pop_front();
  return true;
}

// RFC 5040 §5.2: tagged segments to the sink that the request names. The memory is looked up again
// for each segment, since it may be unregistered while the answer waits for room.
TerminateRaised Responder::answer_read(Request& request) {
  const wire::ReadRequest& read = request.read;
  if (!request.started && queue_.size() == 1) out_.begin_alone();
  const std::size_t room = out_.mulpdu_bytes() - wire::DdpTagged::header_bytes;
  // Set before the first segment, so that an answer that fills the transmitter counts as begun.
  request.started = true;
  do {
    const std::uint32_t left = read.size_bytes - request.sent_bytes;
    const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(room, left));
    iovec piece{nullptr, part};
    if (left > 0) {  // RFC 5040 §5.2.1: an empty read names no memory
      // The rest of the read is checked, not only this segment, so that a read beyond its region
      // fails before its first byte is sent.
      const Memory memory = host_.remote_memory(
          read.source_stag, read.source_offset + request.sent_bytes, left, RemoteRight::read);
      if (memory.fault != Fault::none) return source_code(memory.fault);
      piece.iov_base = memory.at;
    }
    const wire::DdpTagged header{
        .last = part == left,
        .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::read_response),
        .stag = read.sink_stag,
        .tagged_offset = read.sink_offset + request.sent_bytes};
    std::array<std::byte, wire::DdpTagged::header_bytes> bytes;
    header.emit(bytes);
    // Registered memory that is not mapped any more. The peer sees what an on-demand region without
    // pages would show it.
    if (!out_.add(bytes, {&piece, part > 0 ? 1U : 0U})) return source_code(Fault::bounds);
    if (part > 0) {
      host_.note_peer_access({.stag = read.source_stag,
                              .right = RemoteRight::read,
                              .bytes = part,
                              .last = header.last});
    }
    request.sent_bytes += part;
  } while (request.sent_bytes < read.size_bytes && out_.has_room());
  if (request.sent_bytes == read.size_bytes) request.started = false;
  return std::nullopt;
}

// An atomic write (a swap that compares nothing) needs the right to write only, but then must not
// learn the old value: `shown` is false.
Memory Responder::atomic_target(const wire::AtomicRequest& request, bool& shown) {
  const auto look = [&](RemoteRight right) {
    return host_.remote_memory(request.stag, request.tagged_offset, sizeof(std::uint64_t), right);
  };
  const Memory memory = look(RemoteRight::atomic);
  shown = memory.fault == Fault::none;
  if (memory.fault != Fault::access || compares(request)) return memory;
  return look(RemoteRight::write);
}

TerminateRaised Responder::answer_atomic(Request& request) {
  const wire::AtomicRequest& operands = request.operands;
  if (!offered(operands)) return wire::terminate::rdma_unexpected_opcode;
  bool shown = false;
  const Memory memory = atomic_target(operands, shown);
  if (memory.fault != Fault::none) return source_code(memory.fault);
  // RFC 7306 §5.1 demands 64-bit alignment. Memory that is not aligned stays unchanged.
  if (reinterpret_cast<std::uintptr_t>(memory.at) % sizeof(std::uint64_t) != 0) {
    return wire::terminate::rdma_unspecified;
  }
  // Queue 3 has MSNs of its own for atomic responses (RFC 7306 §5).
  const wire::DdpUntagged header{
      .last = true,
      .rdmap_control = wire::rdmap_control(wire::RdmapOpcode::atomic_response),
      .queue = wire::queue::atomic_response,
      .msn = atomic_msn_++};
  std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
  header.emit(bytes);
  std::array<std::byte, wire::AtomicResponse::header_bytes> payload;
  std::uint64_t original = 0;
  if (!guarded_atomic(memory.at, step(operands), original)) return source_code(Fault::bounds);
  wire::AtomicResponse{.request_id = operands.request_id, .original_value = shown ? original : 0}
      .emit(payload);
  host_.note_peer_access(
      {.stag = operands.stag, .right = RemoteRight::atomic, .bytes = sizeof(std::uint64_t)});
  out_.add_own(bytes, payload);
  return std::nullopt;
}

}  // namespace weft::iwarp
