#include "message/inbox.h"

#include <utility>

namespace weft::message::detail {

// All messages of a JOINED frame refer to the slot of its receive, and the last one is marked: then
// the receive can be posted again.
void Inbox::add(Frame& frame, std::uint32_t slot) {
  for (const Part& part : frame.parts) {
    messages_.push_back({.type = part.type,
                         .tag = part.tag,
                         .bytes = part.bytes,
                         .confirm = part.confirm,
                         .ready = true,
                         .slot = slot,
                         .offset = part.offset,
                         .last = &part == &frame.parts.back(),
                         .pieces = {}});
  }
  if (frame.kind == Kind::joined) return;
  messages_.push_back({.type = frame.type,
                       .tag = frame.tag,
                       .bytes = frame.bytes,
                       .confirm = frame.confirm,
                       .ready = frame.kind == Kind::message,
                       .slot = slot,
                       .offset = Frame::payload_offset,
                       .last = true,
                       .pieces = std::move(frame.pieces)});
}

// Each call continues behind the last message that was returned.
InMessage* Inbox::next_fetch() {
  while (fetch_checked_ < messages_.size()) {
    InMessage& message = messages_[fetch_checked_++];
    if (!message.pieces.empty()) return &message;
  }
  return nullptr;
}

void Inbox::on_fetched(InMessage& message) {
  message.ready = true;
  ++fetched_;
}

// In the order of arrival: a message that is still being fetched holds back those behind it.
InMessage Inbox::take() {
  InMessage message = std::move(messages_.front());
  messages_.pop_front();
  if (fetch_checked_ > 0) --fetch_checked_;  // an index into the messages that are left
  return message;
}

}  // namespace weft::message::detail
