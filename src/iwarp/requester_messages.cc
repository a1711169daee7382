// How one request becomes FPDUs: headers of RFC 5040 §4 and RFC 5041 §5, and of RFC 7306.
#include <algorithm>
#include <array>
#include <utility>

#include "base/guarded_memory.h"
#include "iwarp/requester.h"
#include "iwarp/scatter.h"

namespace weft::iwarp {
namespace {

using wire::RdmapOpcode;

RdmapOpcode send_opcode(const StoredRequest& request) {
  const bool invalidate = request.operation == Operation::send_invalidate;
  if (request.solicited) {
    return invalidate ? RdmapOpcode::send_solicited_invalidate : RdmapOpcode::send_solicited;
  }
  return invalidate ? RdmapOpcode::send_invalidate : RdmapOpcode::send;
}

}  // namespace

// Collects the next `bytes` bytes of a request's payload into gathered_. The memory is looked up
// again for each segment, since the application may have withdrawn it between two of them. Of a
// request of one segment start() has collected all of it just now.
bool Requester::gather(std::uint64_t index, std::uint32_t bytes) {
  const Entry& current = queue_.entry(index);
  if (std::exchange(whole_gathered_, false) && bytes == current.length_bytes) return true;
  gathered_.clear();
  if (bytes == 0) return true;
  if (current.request.inline_data) {
    gathered_.push_back({queue_.inline_data(index) + current.built_bytes, bytes});
    return true;
  }
  const Fault fault = map_slices(host_, queue_.slices(index), current.built_bytes, bytes,
                                 fetches(current.request.operation), gathered_);
  return fault == Fault::none;
}

// Adds segments until the message is complete or the transmitter full, in order of their offset
// (RFC 5041 §5.3). Returns true when the message is complete.
bool Requester::build_send(Entry& entry) {
  // Each FPDU is to fit into one TCP segment (RFC 5044 §3), so the MULPDU limits the payload of a
  // DDP segment.
  const std::size_t room = out_.mulpdu_bytes() - wire::DdpUntagged::header_bytes;
  // The first segment: later calls continue the message with the same MSN.
  if (entry.built_bytes == 0) {
    if (entry.request.operation == Operation::send_immediate)
      build_immediate(entry, wire::ImmediateData::announces_immediate);
    entry.msn = send_msn_;
  }
  do {
    const auto part = static_cast<std::uint32_t>(
        std::min<std::size_t>(room, entry.length_bytes - entry.built_bytes));
    if (!gather(queue_.next(), part)) {
      fail(entry, Status::local_protection);
      return false;
    }
    const bool last = entry.built_bytes + part == entry.length_bytes;
    const wire::DdpUntagged header{
        .last = last,
        .rdmap_control = wire::rdmap_control(send_opcode(entry.request)),
        .invalidate_stag =
            entry.request.operation == Operation::send_invalidate ? entry.request.rkey : 0,
        .queue = wire::queue::send,
        .msn = entry.msn,
        .message_offset = entry.built_bytes};
    std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
    header.emit(bytes);
    if (!out_.add(bytes, gathered_)) {
      fail(entry, Status::local_protection);
      return false;
    }
    entry.built_bytes += part;
  } while (entry.built_bytes < entry.length_bytes && out_.has_room());
  if (entry.built_bytes < entry.length_bytes) return false;
  ++send_msn_;
  ++messages_;
  return true;
}

// As build_send(), with tagged segments (RFC 5040 §5.1): each names its place, and there is no MSN.
bool Requester::build_write(Entry& entry) {
  const std::size_t room = out_.mulpdu_bytes() - wire::DdpTagged::header_bytes;
  do {
    const auto part = static_cast<std::uint32_t>(
        std::min<std::size_t>(room, entry.length_bytes - entry.built_bytes));
    if (!gather(queue_.next(), part)) {
      fail(entry, Status::local_protection);
      return false;
    }
    // Verbs programs name remote memory by its address, which is the tagged offset on the wire.
    const wire::DdpTagged header{.last = entry.built_bytes + part == entry.length_bytes,
                                 .rdmap_control = wire::rdmap_control(RdmapOpcode::write),
                                 .stag = entry.request.rkey,
                                 .tagged_offset = entry.request.remote_address + entry.built_bytes};
    std::array<std::byte, wire::DdpTagged::header_bytes> bytes;
    header.emit(bytes);
    if (!out_.add(bytes, gathered_)) {
      fail(entry, Status::local_protection);
      return false;
    }
    entry.built_bytes += part;
  } while (entry.built_bytes < entry.length_bytes && out_.has_room());
  if (entry.built_bytes < entry.length_bytes) return false;
  ++messages_;
  if (entry.request.operation == Operation::write_immediate) build_immediate(entry, 0);
  return true;
}

// Adds an Immediate Data message: after its Write (RFC 7306 §6), or before the Send that it
// announces, and with no other message in between. One FPDU, for which has_room() keeps a reserve.
// send_msn_ is used and counted up in one step: Sends and Immediate Data share the numbers of queue
// 0.
void Requester::build_immediate(Entry& entry, std::uint32_t tag) {
  entry.msn = send_msn_++;
  add_immediate({.data_be = entry.request.immediate_be, .tag = tag}, entry.msn,
                entry.request.solicited);
}

void Requester::add_immediate(const wire::ImmediateData& data, std::uint32_t msn, bool solicited) {
  ++messages_;
  const auto opcode =
      solicited ? RdmapOpcode::immediate_data_solicited : RdmapOpcode::immediate_data;
  const wire::DdpUntagged header{.last = true,
                                 .rdmap_control = wire::rdmap_control(opcode),
                                 .queue = wire::queue::send,
                                 .msn = msn};
  std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
  header.emit(bytes);
  std::array<std::byte, wire::ImmediateData::header_bytes> payload;
  data.emit(payload);
  out_.add_own(bytes, payload);
}

// Adds the message that names the peer's receive queue, where the request belongs to another one
// than the last: programs rarely change it. The request itself starts with the next build(),
// because has_room() keeps a reserve for one such message only.
bool Requester::names_next_queue(const Entry& entry) {
  const std::uint32_t queue = entry.request.receive_queue;
  if (!options_.names_queues || is_local(entry.request.operation) || queue == named_queue_) {
    return false;
  }
  named_queue_ = queue;
  queue_named_ = true;
  add_immediate(
      {.data_be = wire::immediate_of_number(queue), .tag = wire::ImmediateData::names_queue},
      send_msn_++, false);
  return true;
}

// Adds a message of queue 1 and remembers that its response is to come, and what that will prove.
void Requester::add_request(RdmapOpcode opcode, Bytes payload, Outstanding outstanding) {
  // Queue 1 has its own MSNs (RFC 5040 §5.2, RFC 7306 §5), for reads and atomics together.
  outstanding.msn = request_msn_++;
  outstanding.sent_cost = window_.sent_cost();
  ++messages_;
  const wire::DdpUntagged header{.last = true,
                                 .rdmap_control = wire::rdmap_control(opcode),
                                 .queue = wire::queue::request,
                                 .msn = outstanding.msn};
  std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
  header.emit(bytes);
  out_.add_own(bytes, payload);
  if (outstanding.probe) {
    proofs_.probe_sent();
  } else {
    proofs_.read_sent();
    ++users_outstanding_;
  }
  outstanding_.push_back(outstanding);
}

// The request names the first slice as the sink, and the peer sends that name back. The response is
// checked against the outstanding read, not looked up in a table: the slices need no remote rights,
// and there may be several of them.
void Requester::build_read(Entry& entry) {
  const auto slices = queue_.slices(queue_.next());
  Outstanding outstanding{.index = queue_.next(), .size_bytes = entry.length_bytes};
  // A read of no bytes may have no slice. Then the sink is zero, which is not checked (RFC 5040
  // §5.2.1).
  if (!slices.empty()) {
    outstanding.sink_stag = slices.front().lkey;
    outstanding.sink_offset = slices.front().address;
  }
  const wire::ReadRequest request{.sink_stag = outstanding.sink_stag,
                                  .sink_offset = outstanding.sink_offset,
                                  .size_bytes = entry.length_bytes,
                                  .source_stag = entry.request.rkey,
                                  .source_offset = entry.request.remote_address};
  std::array<std::byte, wire::ReadRequest::header_bytes> payload;
  request.emit(payload);
  entry.msn = request_msn_;
  add_request(RdmapOpcode::read_request, payload, outstanding);
}

// RFC 7306 §5.1: plain FetchAdd has an add mask of zero, and its compare fields are not
// significant. An atomic write is a CmpSwap with a compare mask of zero: it writes in any case.
// Empty where its value cannot be read.
std::optional<wire::AtomicRequest> Requester::atomic_operands(const StoredRequest& request) const {
  constexpr std::uint64_t whole = ~std::uint64_t{0};
  switch (request.operation) {
    case Operation::compare_swap:
      return wire::AtomicRequest{.opcode = wire::AtomicOpcode::compare_swap,
                                 .add_or_swap = request.swap,
                                 .add_or_swap_mask = whole,
                                 .compare = request.compare_or_add,
                                 .compare_mask = whole};
    case Operation::atomic_write: {
      std::uint64_t value = 0;
      if (!guarded_load(&value, gathered_.front().iov_base, sizeof value)) return std::nullopt;
      return wire::AtomicRequest{.opcode = wire::AtomicOpcode::compare_swap,
                                 .add_or_swap = value,
                                 .add_or_swap_mask = whole,
                                 .compare_mask = 0};
    }
    default:
      return wire::AtomicRequest{.opcode = wire::AtomicOpcode::fetch_add,
                                 .add_or_swap = request.compare_or_add,
                                 .compare_mask = whole};
  }
}

bool Requester::build_atomic(Entry& entry) {
  // Only an atomic write takes its operand from memory; the others have it in the request.
  const bool known = entry.request.operation != Operation::atomic_write ||
                     gather(queue_.next(), entry.length_bytes);
  auto request = known ? atomic_operands(entry.request) : std::nullopt;
  if (!request) {
    fail(entry, Status::local_protection);
    return false;
  }
  // Any value that is unique among the outstanding ones would do; the MSN is.
  request->request_id = request_msn_;
  request->stag = entry.request.rkey;
  request->tagged_offset = entry.request.remote_address;
  std::array<std::byte, wire::AtomicRequest::header_bytes> payload;
  request->emit(payload);
  entry.msn = request_msn_;
  add_request(RdmapOpcode::atomic_request, payload, {.atomic = true, .index = queue_.next()});
  return true;
}

void Requester::build_probe() {
  std::array<std::byte, wire::ReadRequest::header_bytes> payload;
  // RFC 5040 §5.2.1: STags and offsets of a zero-length read are not checked.
  wire::ReadRequest{.sink_stag = no_memory_stag, .source_stag = no_memory_stag}.emit(payload);
  add_request(RdmapOpcode::read_request, payload, {.probe = true, .index = queue_.next()});
}

}  // namespace weft::iwarp
