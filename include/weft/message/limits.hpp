// The limits of an event loop, in one table: what its connections may use, and what a peer can make
// them use. Each end keeps to its own limits and to those that the peer has told.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::message {

// Of an event loop, for all of its connections.
struct Limits {
  // The longest message, in both directions. A longer one is EMSGSIZE when it is sent; a peer that
  // knows its limit cannot send one.
  std::uint64_t max_message_bytes = std::uint64_t{1} << 30;
  // Up to here a message goes by Send, and each receive has so much room; longer ones stay where
  // they are until the receiver reads them. The smaller one of both ends' holds.
  std::uint32_t eager_bytes = 8192;
  // Frames that a peer may have under way before we have handed over what is in them; it waits for
  // more. A frame is one message, or several short ones that have waited together. Each costs a
  // receive of `eager_bytes` for each connection, in memory that is not touched before
  // it is used. 1 to 32767.
  std::uint16_t credits = 32;
  // Messages and bytes of one connection that wait to be sent; beyond is EAGAIN, and `writable`
  // follows. A single message may have more bytes than that.
  std::size_t send_queue_messages = 1024;
  std::uint64_t send_queue_bytes = std::uint64_t{64} << 20;
  // Memory of a loop for what peers send, beyond the receives: long messages until they are handed
  // over and freed, and buffers that were kept. When it is used up, long messages wait at their
  // senders, and kept buffers are not replaced, so that senders run out of credits. At least
  // `max_message_bytes`.
  std::uint64_t pool_bytes = std::uint64_t{1} << 30;
  // Connections of one listener, with requests that are not decided yet. More are rejected, with
  // this number as the reason.
  std::uint32_t max_connections = 16384;
};

// Pieces of one message. EINVAL beyond.
inline constexpr std::size_t max_pieces = 16;
// What an application may say when it connects, accepts or refuses. EINVAL beyond. rdma_connect(3)
// over InfiniBand has the least room.
inline constexpr std::size_t max_private_data_bytes = 32;

}  // namespace weft::message
