// MessageQueue: messages of a session in order. They are linked through themselves, so that to move
// one from queue to queue costs a few stores: no allocation, and no count of a shared pointer.
#pragma once

#include <cstddef>
#include <utility>

#include "message/out_message.h"

namespace weft::message::detail {

// Keeps the messages alive. Not thread-safe.
class MessageQueue {
 public:
  MessageQueue() = default;
  ~MessageQueue() { clear(); }
  MessageQueue(const MessageQueue&) = delete;
  MessageQueue& operator=(const MessageQueue&) = delete;

  [[nodiscard]] bool empty() const { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const { return size_; }
  // These two only where it is not empty.
  [[nodiscard]] OutMessage& front() const { return *first_; }
  [[nodiscard]] OutPointer share_front() const { return first_->self_; }

  // The message must be in no queue.
  void push(OutPointer message) {
    OutMessage* const added = message.get();
    added->self_ = std::move(message);
    append(added);
  }
  // Only where it is not empty.
  [[nodiscard]] OutPointer pop() { return std::move(take_first()->self_); }
  void move_front_to(MessageQueue& other) { other.append(take_first()); }
  void clear() {
    while (!empty()) (void)pop();
  }

 private:
  void append(OutMessage* message) {
    message->next_ = nullptr;
    (last_ ? last_->next_ : first_) = message;
    last_ = message;
    ++size_;
  }
  OutMessage* take_first() {
    OutMessage* const taken = first_;
    first_ = taken->next_;
    if (!first_) last_ = nullptr;
    --size_;
    return taken;
  }

  OutMessage* first_ = nullptr;
  OutMessage* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace weft::message::detail
