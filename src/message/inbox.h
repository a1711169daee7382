// Inbox: the messages of a session that have arrived and were not handed over to the application,
// in order. Long ones are in it from their OFFER frame on, and must be fetched first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "message/frame_wire.h"

namespace weft::message::detail {

struct InMessage {
  std::uint32_t type = 0;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  bool confirm = false;                    // the sender waits for the delivery
  bool ready = false;                      // its bytes are here
  std::uint32_t slot = 0;                  // the receive that its frame came in
  std::size_t offset = 0;                  // of its payload in that receive
  bool last = true;                        // it is the last message of that receive
  std::vector<verbs::RemoteSlice> pieces;  // where to fetch it from; empty: it is in the slot
};

// Not thread-safe.
class Inbox {
 public:
  // Adds the messages of a MESSAGE, JOINED or OFFER frame.
  void add(Frame& frame, std::uint32_t slot);
  // The next message to fetch, in order, each once; null if there is none. It stays at its address.
  [[nodiscard]] InMessage* next_fetch();
  // Counts a message whose bytes have been fetched. Messages are fetched in order.
  void on_fetched(InMessage& message);

  [[nodiscard]] bool has_ready() const { return !messages_.empty() && messages_.front().ready; }
  // The next message; only where has_ready().
  [[nodiscard]] InMessage take();
  void count_delivered() { ++delivered_; }

  [[nodiscard]] bool empty() const { return messages_.empty(); }
  [[nodiscard]] std::size_t size() const { return messages_.size(); }
  // Counts for the peer, modulo 2^32.
  [[nodiscard]] Count delivered() const { return delivered_; }
  [[nodiscard]] Count fetched() const { return fetched_; }

 private:
  // A deque: pointers from next_fetch() stay valid while messages are added and taken.
  std::deque<InMessage> messages_;
  std::size_t fetch_checked_ = 0;  // messages that next_fetch() has passed
  Count delivered_ = 0;
  Count fetched_ = 0;
};

}  // namespace weft::message::detail
