// Messages that arrived before their receive was posted.
#include <algorithm>

#include "base/guarded_memory.h"
#include "iwarp/receiver.h"
#include "iwarp/scatter.h"

namespace weft::iwarp {

// A full hold ends the stream as RFC 5041 §7.1 wants it: "no buffer".
TerminateRaised Receiver::begin_held(const Segment& segment) {
  if (options_.hold_bytes == 0) return wire::terminate::untagged_no_buffer;
  // Most connections never hold a message, so the hold is made when it is needed.
  if (!hold_) hold_ = std::make_unique<Hold>(options_.hold_bytes);
  if (!hold_->begin(messages_ + 1, queue_, segment)) return wire::terminate::untagged_no_buffer;
  begun_ = holding_ = true;
  return std::nullopt;
}

// Only the oldest held message may take a receive, so a message that is not alone stays held.
TerminateRaised Receiver::continue_held(const Segment& segment) {
  if (hold_->size() == 1 && take_receive()) return adopt(segment);
  if (hold_->extend(segment)) return std::nullopt;
  return wire::terminate::untagged_no_buffer;
}

// A receive was posted while its message is arriving: copies what has arrived, so that the rest is
// placed there directly. Called only between two segments, since a part of one may be in the hold.
TerminateRaised Receiver::adopt(const Segment& segment) {
  holding_ = false;
  const auto raised = copy_held();
  hold_->pop();
  if (raised) return raised;
  // The check of check_send(), which did not know the receive when the message began.
  if (expected_offset_ + segment.payload_bytes > capacity_bytes_) {
    return fail_receive(Status::local_length, wire::terminate::untagged_too_long);
  }
  return std::nullopt;
}

// Copies what has arrived of the oldest held message into current_.
TerminateRaised Receiver::copy_held() {
  const std::size_t payload_bytes = hold_->front().payload_bytes();
  if (payload_bytes > capacity_bytes_) {
    return fail_receive(Status::local_length, wire::terminate::untagged_too_long);
  }
  if (payload_bytes == 0) return std::nullopt;
  std::vector<iovec> targets;
  if (map_slices(host_, current_.slices, 0, payload_bytes, true, targets) != Fault::none) {
    return send_lost();
  }
  std::size_t copied = 0;
  for (const auto& target : targets) {
    for (std::size_t done = 0; done < target.iov_len;) {
      const auto run = hold_->oldest_payload(copied);
      const std::size_t bytes = std::min(run.size(), target.iov_len - done);
      if (!guarded_store(static_cast<std::byte*>(target.iov_base) + done, run.data(), bytes)) {
        return send_lost();
      }
      done += bytes;
      copied += bytes;
    }
  }
  return std::nullopt;
}

// Completes the oldest held message as if it had arrived now.
TerminateRaised Receiver::place_held() {
  const HeldMessage& message = hold_->front();
  if (message.from_write()) {
    complete_immediate(message.segment(), message.write_bytes(),
                       message.immediate_be().value_or(0));
    return std::nullopt;
  }
  if (const auto raised = copy_held()) return raised;
  return complete_send(message.segment(), message.payload_bytes(), message.immediate_be());
}

// A grant is given only when the hold is empty, and the receive for it is taken at once: no other
// message can use it then, because the peer sends the granted one next.
TerminateRaised Receiver::settle() {
  while (holds() && take_receive()) {
    if (!hold_->front().complete()) return std::nullopt;  // its next segment adopts the receive
    if (const auto raised = place_held()) return raised;
    hold_->pop();
  }
  // The receive stays in current_ until the granted message arrives.
  if (grant_wanted_ && !holds() && take_receive()) {
    grant_wanted_ = false;
    grant_ = expected_msn_;
  }
  return std::nullopt;
}

// The MSN must be that of the next message, as grants are asked for in order.
bool Receiver::want_grant(std::uint32_t msn) {
  // A peer asks only where our hello has named a hold, and not for a message that is arriving.
  if (options_.hold_bytes == 0 || begun_ || msn != expected_msn_) return false;
  grant_wanted_ = true;
  return true;
}

// Named by its number, so that the clock can see when another message has become the oldest.
std::uint64_t Receiver::starving_message() const {
  if (taken_) return 0;
  if (holds()) return hold_->front().number();
  return grant_wanted_ ? messages_ + 1 : 0;
}

Segment Receiver::waiting_segment() const {
  if (holds()) return hold_->front().segment();
  // The message waits at the peer for a grant. Makes the header that its first segment would have.
  Segment segment;
  segment.opcode = wire::RdmapOpcode::send;
  segment.untagged_header = {.rdmap_control = wire::rdmap_control(segment.opcode),
                             .queue = wire::queue::send,
                             .msn = expected_msn_};
  segment.untagged_header.emit(segment.raw_header);
  return segment;
}

}  // namespace weft::iwarp
