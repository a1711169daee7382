// OutMessage: a message that is sent, as the session knows it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "weft/message/status.hpp"

namespace weft::message::detail {

struct OutMessage;
using OutPointer = std::shared_ptr<OutMessage>;

// The derived class keeps its memory until the status is `sent` or `failed`.
struct OutMessage {
  OutMessage() = default;
  virtual ~OutMessage() = default;
  OutMessage(const OutMessage&) = delete;
  OutMessage& operator=(const OutMessage&) = delete;

  std::uint32_t type = 0;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  bool confirm = false;
  // Written by the loop's thread, read by any.
  std::atomic<Status> status{Status::waiting};
  std::atomic<int> error{0};

 protected:
  // Makes it a new message: nothing of a session refers to it any more.
  void reset() {
    type = 0;
    tag = 0;
    bytes = 0;
    confirm = false;
    status.store(Status::waiting, std::memory_order_relaxed);
    error.store(0, std::memory_order_relaxed);
    acknowledged_ = false;
  }

 private:
  friend class Session;
  friend class MessageQueue;
  bool acknowledged_ = false;  // by the peer's count of delivered messages
  // While it is in a MessageQueue.
  OutMessage* next_ = nullptr;
  OutPointer self_;
};

}  // namespace weft::message::detail
