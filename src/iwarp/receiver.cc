#include "iwarp/receiver.h"

#include "base/guarded_memory.h"
#include "iwarp/fault_codes.h"
#include "iwarp/scatter.h"

namespace weft::iwarp {
namespace {

using wire::RdmapOpcode;

// The opcodes (RFC 5040 §4.1, RFC 7306 §4) whose completion wakes a receiver that waits for
// solicited events only.
bool is_solicited(RdmapOpcode opcode) {
  return opcode == RdmapOpcode::send_solicited ||
         opcode == RdmapOpcode::send_solicited_invalidate ||
         opcode == RdmapOpcode::immediate_data_solicited;
}

bool invalidates(RdmapOpcode opcode) {
  return opcode == RdmapOpcode::send_invalidate || opcode == RdmapOpcode::send_solicited_invalidate;
}

}  // namespace

// A receive that was taken and not used is the first one that check_send() finds.
bool Receiver::take_send(std::uint32_t msn, Bytes payload) {
  if (options_.drops || options_.names_queues || begun_ || announced_be_ || holds()) return false;
  if (msn != expected_msn_ || !take_receive()) return false;
  if (current_.slices.size() != 1 || payload.size() > capacity_bytes_) return false;
  const Memory memory = host_.local_memory(current_.slices.front(), true);
  if (memory.fault != Fault::none) return false;
  if (!guarded_store(memory.at, payload.data(), payload.size())) return false;
  grant_wanted_ = false;
  complete({.wr_id = current_.wr_id,
            .queue = current_.queue,
            .length_bytes = static_cast<std::uint32_t>(payload.size())});
  arrived();
  return true;
}

bool Receiver::take_write(std::uint32_t stag, std::uint64_t offset, Bytes payload) {
  if (options_.drops || write_open_ || holds()) return false;
  const Memory memory = host_.remote_memory(stag, offset, payload.size(), RemoteRight::write);
  if (memory.fault != Fault::none) return false;
  if (!guarded_store(memory.at, payload.data(), payload.size())) return false;
  write_bytes_ = payload.size();
  host_.note_peer_access(
      {.stag = stag, .right = RemoteRight::write, .bytes = payload.size(), .last = true});
  ++messages_;
  return true;
}

// RFC 5041 §5.2, §7: STag, stream, bounds and wrap-around are checked for the whole segment before
// its first byte is placed.
TerminateRaised Receiver::check_write(const Segment& segment) {
  // The first segment of a Write: a message before it that was dropped is over.
  if (!write_open_) write_dropped_ = false;
  if (segment.payload_bytes == 0) return std::nullopt;  // RFC 5040 §5.1: names no memory
  const auto& header = segment.tagged_header;
  const Memory memory = host_.remote_memory(header.stag, header.tagged_offset,
                                            segment.payload_bytes, RemoteRight::write);
  if (memory.fault == Fault::none) return std::nullopt;
  // On an unreliable connection the Write disappears, as on InfiniBand, whose responder drops it
  // silently for UC.
  if (!options_.drops) return tagged_code(memory.fault);
  write_dropped_ = true;
  return std::nullopt;
}

// The memory is looked up again, since it may have been unregistered since check_write(): a large
// segment arrives over several reads.
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
  // The length of the whole Write: the completion of an Immediate Data message that follows reports
  // it.
  if (!write_open_) write_bytes_ = 0;
  write_bytes_ += segment.payload_bytes;
  if (write_bytes_ > 0 && !write_dropped_) {
    host_.note_peer_access({.stag = segment.tagged_header.stag,
                            .right = RemoteRight::write,
                            .bytes = segment.payload_bytes,
                            .last = segment.last()});
  }
  write_open_ = !segment.last();
  if (!write_open_) ++messages_;
}

// RFC 5041 §5.3, §8: queue 0 receives messages in the order of their MSN, and the segments of each
// without a gap. The first segment decides where the message goes.
TerminateRaised Receiver::check_send(const Segment& segment) {
  const auto& header = segment.untagged_header;
  if (header.msn != expected_msn_) return wire::terminate::untagged_msn_range;
  // The segments of a message arrive in the order of their offsets (RFC 5041 §5.3), so each begins
  // where the one before it ended.
  if (header.message_offset != expected_offset_) return wire::terminate::untagged_invalid_offset;
  if (!begun_) {
    if (const auto raised = begin_message(segment)) return raised;
  }
  if (send_dropped_) return std::nullopt;
  if (holding_) return continue_held(segment);
  // InfiniBand's UC drops a message that does not fit and leaves the receive posted.
  if (options_.drops && expected_offset_ + segment.payload_bytes > capacity_bytes_) {
    return drop_message();
  }
  // A message that is longer than its buffer ends the stream, and the receive completes with a
  // length error.
  if (expected_offset_ + segment.payload_bytes > capacity_bytes_) {
    return fail_receive(Status::local_length, wire::terminate::untagged_too_long);
  }
  return std::nullopt;
}

// Makes sure that current_ holds a receive. One that was taken before and not used is kept.
bool Receiver::take_receive() {
  if (taken_) return true;
  current_.queue = holds() ? hold_->front().queue() : queue_;
  if (!host_.next_receive(current_)) return false;
  taken_ = true;
  // Summed once, because each segment is compared with it.
  capacity_bytes_ = total_bytes(current_.slices);
  return true;
}

// Receives are taken in the order of messages, so nothing may take one while an older message is
// held. The peer has sent its message, so a grant for it is not wanted any more.
TerminateRaised Receiver::begin_message(const Segment& segment) {
  // The queue may be destroyed since it was named.
  if (options_.names_queues && !host_.name_receive_queue(queue_)) {
    return wire::terminate::untagged_invalid_queue;
  }
  grant_wanted_ = false;
  if (options_.drops && !take_receive()) return drop_message();
  // `holds()` first: a receive that is posted now belongs to the oldest held message.
  if (holds() || !take_receive()) return begin_held(segment);
  begun_ = true;
  return std::nullopt;
}

// A receive that was taken for the message stays in current_ for the next one.
TerminateRaised Receiver::drop_message() {
  begun_ = send_dropped_ = true;
  return std::nullopt;
}

// Completes the receive in error; `code` is returned for the peer.
wire::TerminateCode Receiver::fail_receive(Status status, wire::TerminateCode code) {
  taken_ = false;
  host_.complete_receive({.wr_id = current_.wr_id, .queue = current_.queue, .status = status});
  return code;
}

TerminateRaised Receiver::send_targets(const Segment& segment, std::uint32_t offset,
                                       std::uint32_t length, std::vector<iovec>& out) {
  const std::uint64_t position = segment.untagged_header.message_offset + std::uint64_t{offset};
  // The targets are in the hold; nothing of the message reaches the application yet.
  if (holding_) {
    hold_->map_newest(position, length, out);
    return std::nullopt;
  }
  const Fault fault = map_slices(host_, current_.slices, position, length, true, out);
  if (fault == Fault::none) return std::nullopt;
  return send_lost();
}

// The application here posted memory that it may not use, or has unmapped it. That is not the
// peer's fault.
wire::TerminateCode Receiver::send_lost() {
  return fail_receive(Status::local_protection, wire::terminate::rdma_stream_catastrophic);
}

TerminateRaised Receiver::deliver_send(const Segment& segment) {
  expected_offset_ += segment.payload_bytes;
  if (!segment.last()) return std::nullopt;
  const std::uint64_t length_bytes = expected_offset_;
  // The announcement belongs to this Send, also where it is held or dropped.
  const auto immediate_be = std::exchange(announced_be_, std::nullopt);
  if (send_dropped_) return arrived(), std::nullopt;
  if (holding_) {
    hold_->back().finish(immediate_be);
  } else if (const auto raised = complete_send(segment, length_bytes, immediate_be)) {
    return raised;
  }
  arrived();
  return std::nullopt;
}

// RFC 5040 §5.3: a Send with Invalidate is complete only when its STag is invalid.
TerminateRaised Receiver::complete_send(const Segment& segment, std::uint64_t length_bytes,
                                        std::optional<std::uint32_t> immediate_be) {
  ReceiveCompletion completion{.wr_id = current_.wr_id,
                               .queue = current_.queue,
                               .length_bytes = static_cast<std::uint32_t>(length_bytes),
                               .solicited = is_solicited(segment.opcode),
                               .has_immediate = immediate_be.has_value(),
                               .immediate_be = immediate_be.value_or(0)};
  if (invalidates(segment.opcode)) {
    const std::uint32_t stag = segment.untagged_header.invalidate_stag;
    // The message is placed, but its completion would claim an invalidation that did not happen.
    if (!host_.invalidate(stag)) {
      return fail_receive(Status::local_operation, wire::terminate::rdma_cannot_invalidate);
    }
    completion.has_invalidated = true;
    completion.invalidated_rkey = stag;
  }
  complete(completion);
  return std::nullopt;
}

// RFC 7306 §6: one untagged segment of queue 0, which has an MSN and takes a receive. It completes
// that receive with the length of the Write before it.
TerminateRaised Receiver::immediate(const Segment& segment, const wire::ImmediateData& immediate) {
  const auto& header = segment.untagged_header;
  if (header.msn != expected_msn_) return wire::terminate::untagged_msn_range;
  // While a Send is arriving it has this MSN, and its segments are not Immediate Data.
  if (header.message_offset != 0 || !segment.last() || begun_) {
    return wire::terminate::untagged_invalid_offset;
  }
  // An announcement must be followed by its Send.
  if (announced_be_) return wire::terminate::rdma_unexpected_opcode;
  if (options_.names_queues && immediate.tag == wire::ImmediateData::names_queue) {
    return name_queue(immediate);
  }
  if (options_.announcements && immediate.tag != 0) return announce(immediate);
  // Write and immediate are one request of the sender: both are dropped, and no receive is used.
  if (options_.drops && write_dropped_) return arrived(), std::nullopt;
  if (const auto raised = begin_message(segment)) return raised;
  if (send_dropped_) return arrived(), std::nullopt;
  if (holding_) {
    hold_->back().finish_write(immediate.data_be, static_cast<std::uint32_t>(write_bytes_));
  } else {
    complete_immediate(segment, write_bytes_, immediate.data_be);
  }
  arrived();
  write_bytes_ = 0;
  return std::nullopt;
}

// An announcement has an MSN but takes no receive. The Send that follows takes it.
TerminateRaised Receiver::announce(const wire::ImmediateData& immediate) {
  announced_be_ = immediate.data_be;
  arrived();
  return std::nullopt;
}

// Has an MSN and takes no receive, too. The number counts until the peer names another one.
TerminateRaised Receiver::name_queue(const wire::ImmediateData& immediate) {
  const std::uint32_t number = wire::number_of_immediate(immediate.data_be);
  if (!host_.name_receive_queue(number)) return wire::terminate::untagged_invalid_queue;
  queue_ = number;
  arrived();
  return std::nullopt;
}

void Receiver::complete_immediate(const Segment& segment, std::uint64_t write_bytes,
                                  std::uint32_t immediate_be) {
  complete({.wr_id = current_.wr_id,
            .queue = current_.queue,
            .length_bytes = static_cast<std::uint32_t>(write_bytes),
            .solicited = is_solicited(segment.opcode),
            .from_write = true,
            .has_immediate = true,
            .immediate_be = immediate_be});
}

void Receiver::complete(const ReceiveCompletion& completion) {
  taken_ = false;
  host_.complete_receive(completion);
}

// The message of queue 0 has arrived whole: it is placed, held or dropped.
void Receiver::arrived() {
  begun_ = false;
  holding_ = false;
  send_dropped_ = false;
  expected_offset_ = 0;
  ++expected_msn_;
  ++messages_;
}

// The last segment knows the length of its message.
void Receiver::note_discarded(const Segment& segment) {
  if (!segment.last()) return;
  ++unreceived_.messages;
  unreceived_.bytes +=
      std::uint64_t{segment.untagged_header.message_offset} + segment.payload_bytes;
}

// What is held was never placed: the peer learns it from the count of executed messages.
void Receiver::flush(Status status) {
  for (; holds(); hold_->pop()) {
    if (!hold_->front().complete() || hold_->front().from_write()) continue;
    ++unreceived_.messages;
    unreceived_.bytes += hold_->front().payload_bytes();
  }
  hold_.reset();
  grant_wanted_ = false;
  if (!taken_) return;
  taken_ = false;
  host_.complete_receive({.wr_id = current_.wr_id, .queue = current_.queue, .status = status});
}

}  // namespace weft::iwarp
