// MessageFetcher: reads long messages, which the peer has offered, by RDMA Read.
//
// Messages are read in order, each in pieces of limited length, with a few reads under way at once.
#pragma once

#include <cstdint>
#include <deque>

#include "message/inbox.h"
#include "message/pool.h"
#include "weft/verbs.hpp"

namespace weft::message::detail {

class Session;

// Not thread-safe: belongs to the loop's thread.
class MessageFetcher {
 public:
  // Reads under way at once. rdma_cm announces it to the peer (initiator depth).
  static constexpr std::uint32_t max_reads = 4;

  [[nodiscard]] bool can_read() const { return reads_ < max_reads; }
  // The last message that was begun has bytes that are not requested yet.
  [[nodiscard]] bool has_unread() const {
    return !fetches_.empty() && fetches_.back().requested < fetches_.back().message->bytes;
  }
  // The message to begin next, null if there is none. It stays the same until begin().
  [[nodiscard]] InMessage* next_message(Session& session);
  // Begins that message, which is to be read into `block`.
  void begin(BlockPointer block);
  struct Read {
    verbs::LocalSlice into;
    verbs::RemoteSlice from;
  };
  // The next read to post; only where can_read() and has_unread().
  [[nodiscard]] Read next_read();
  // A read has completed, of the oldest message under way. Returns that message if it is complete.
  [[nodiscard]] InMessage* complete_read();
  // The bytes of the oldest complete message that were not taken yet.
  [[nodiscard]] BlockPointer take_complete();

  // Forgets the messages that are not complete; no read may be under way.
  void abandon();

 private:
  struct Fetch {
    InMessage* message;
    BlockPointer block;
    std::size_t piece = 0;        // of the message: the next one to request
    std::uint64_t offset = 0;     // in that piece
    std::uint64_t requested = 0;  // bytes
    std::uint32_t reads = 0;      // under way
  };

  InMessage* next_ = nullptr;
  std::deque<Fetch> fetches_;
  std::deque<BlockPointer> complete_;
  std::uint32_t reads_ = 0;  // under way
};

}  // namespace weft::message::detail
