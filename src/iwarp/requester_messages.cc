// From one request to its FPDUs.
#include <algorithm>
#include <array>
#include <cstring>

#include "iwarp/requester.h"
#include "iwarp/scatter.h"

namespace weft::iwarp {
namespace {

using wire::RdmapOpcode;

// The second word of an Immediate Data message that belongs to the Send behind it.
constexpr std::uint32_t announcing = 1;

RdmapOpcode send_opcode(const WorkRequest& request) {
  const bool invalidate = request.operation == Operation::send_invalidate;
  if (request.solicited) {
    return invalidate ? RdmapOpcode::send_solicited_invalidate : RdmapOpcode::send_solicited;
  }
  return invalidate ? RdmapOpcode::send_invalidate : RdmapOpcode::send;
}

}  // namespace

// Collects the next `bytes` bytes of a request's payload into gathered_.
bool Requester::gather(std::uint64_t index, std::uint32_t bytes) {
  gathered_.clear();
  Entry& current = entry(index);
  if (bytes == 0) return true;
  if (current.request.inline_data) {
    std::byte* data = inline_data_.data() + (index % entries_.size()) * limits_.inline_bytes;
    gathered_.push_back({data + current.built_bytes, bytes});
    return true;
  }
  const Fault fault = map_slices(host_, slices_of(index), current.built_bytes, bytes,
                                 fetches(current.request.operation), gathered_);
  return fault == Fault::none;
}

// Returns true when the message is complete (RFC 5041 §5.3: segments in order of offset).
bool Requester::build_send(Entry& entry) {
  const std::size_t room = out_.mulpdu_bytes() - wire::DdpUntagged::header_bytes;
  if (entry.built_bytes == 0) {
    if (entry.request.operation == Operation::send_immediate) build_immediate(entry, announcing);
    entry.msn = send_msn_;
  }
  do {
    const auto part = static_cast<std::uint32_t>(
        std::min<std::size_t>(room, entry.length_bytes - entry.built_bytes));
    if (!gather(next_, part)) {
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
    out_.add(bytes, gathered_);
    entry.built_bytes += part;
  } while (entry.built_bytes < entry.length_bytes && out_.has_room());
  if (entry.built_bytes < entry.length_bytes) return false;
  ++send_msn_;
  ++messages_;
  return true;
}

bool Requester::build_write(Entry& entry) {
  const std::size_t room = out_.mulpdu_bytes() - wire::DdpTagged::header_bytes;
  do {
    const auto part = static_cast<std::uint32_t>(
        std::min<std::size_t>(room, entry.length_bytes - entry.built_bytes));
    if (!gather(next_, part)) {
      fail(entry, Status::local_protection);
      return false;
    }
    const wire::DdpTagged header{.last = entry.built_bytes + part == entry.length_bytes,
                                 .rdmap_control = wire::rdmap_control(RdmapOpcode::write),
                                 .stag = entry.request.rkey,
                                 .tagged_offset = entry.request.remote_address + entry.built_bytes};
    std::array<std::byte, wire::DdpTagged::header_bytes> bytes;
    header.emit(bytes);
    out_.add(bytes, gathered_);
    entry.built_bytes += part;
  } while (entry.built_bytes < entry.length_bytes && out_.has_room());
  if (entry.built_bytes < entry.length_bytes) return false;
  ++messages_;
  if (entry.request.operation == Operation::write_immediate) build_immediate(entry, 0);
  return true;
}

// RFC 7306 §6: behind the Write, or in front of a Send, with nothing of ours in between.
void Requester::build_immediate(Entry& entry, std::uint32_t tag) {
  entry.msn = send_msn_++;
  ++messages_;
  const auto opcode =
      entry.request.solicited ? RdmapOpcode::immediate_data_solicited : RdmapOpcode::immediate_data;
  const wire::DdpUntagged header{.last = true,
                                 .rdmap_control = wire::rdmap_control(opcode),
                                 .queue = wire::queue::send,
                                 .msn = entry.msn};
  std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
  header.emit(bytes);
  std::array<std::byte, wire::ImmediateData::header_bytes> payload;
  wire::ImmediateData{.data_be = entry.request.immediate_be, .tag = tag}.emit(payload);
  const iovec piece{payload.data(), payload.size()};
  out_.add(bytes, {&piece, 1});
}

// Adds a message of queue 1 and remembers that its answer is to come.
void Requester::add_request(RdmapOpcode opcode, Bytes payload, Outstanding outstanding) {
  outstanding.msn = request_msn_++;
  outstanding.sent_cost = sent_cost_;
  ++messages_;
  const wire::DdpUntagged header{.last = true,
                                 .rdmap_control = wire::rdmap_control(opcode),
                                 .queue = wire::queue::request,
                                 .msn = outstanding.msn};
  std::array<std::byte, wire::DdpUntagged::header_bytes> bytes;
  header.emit(bytes);
  const iovec piece{const_cast<std::byte*>(payload.data()), payload.size()};
  out_.add(bytes, {&piece, 1});
  if (outstanding.ours) {
    ours_outstanding_ = true;
  } else {
    ++users_outstanding_;
  }
  outstanding_.push_back(outstanding);
  unproven_bytes_ = 0;  // its answer proves all that went before
}

// The sink is named by the first slice. Nobody looks it up: a response is checked against the
// outstanding read, so the slices need no remote rights (and may be several).
void Requester::build_read(Entry& entry) {
  const auto slices = slices_of(next_);
  Outstanding outstanding{.index = next_, .size_bytes = entry.length_bytes};
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
// significant. A swap that compares nothing writes in any case.
wire::AtomicRequest Requester::atomic_operands(const WorkRequest& work) const {
  constexpr std::uint64_t whole = ~std::uint64_t{0};
  switch (work.operation) {
    case Operation::compare_swap:
      return {.opcode = wire::AtomicOpcode::compare_swap,
              .add_or_swap = work.swap,
              .add_or_swap_mask = whole,
              .compare = work.compare_or_add,
              .compare_mask = whole};
    case Operation::atomic_write: {
      std::uint64_t value = 0;
      std::memcpy(&value, gathered_.front().iov_base, sizeof value);
      return {.opcode = wire::AtomicOpcode::compare_swap,
              .add_or_swap = value,
              .add_or_swap_mask = whole,
              .compare_mask = 0};
    }
    default:
      return {.opcode = wire::AtomicOpcode::fetch_add,
              .add_or_swap = work.compare_or_add,
              .compare_mask = whole};
  }
}

bool Requester::build_atomic(Entry& entry) {
  if (entry.request.operation == Operation::atomic_write && !gather(next_, entry.length_bytes)) {
    fail(entry, Status::local_protection);
    return false;
  }
  wire::AtomicRequest request = atomic_operands(entry.request);
  request.request_id = request_msn_;
  request.stag = entry.request.rkey;
  request.tagged_offset = entry.request.remote_address;
  std::array<std::byte, wire::AtomicRequest::header_bytes> payload;
  request.emit(payload);
  entry.msn = request_msn_;
  add_request(RdmapOpcode::atomic_request, payload, {.atomic = true, .index = next_});
  return true;
}

void Requester::build_probe() {
  std::array<std::byte, wire::ReadRequest::header_bytes> payload;
  wire::ReadRequest{}.emit(payload);  // zero length: STags and offsets are not checked (§5.2.1)
  add_request(RdmapOpcode::read_request, payload, {.ours = true, .index = next_});
}

}  // namespace weft::iwarp
