// Limits: what the connections of an event loop may use, and what a peer can make them use. Each
// end keeps to its own limits, and to those that the peer has announced.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace weft::message {

// The limits of one event loop, for all of its connections.
struct Limits {
  // The longest message in both directions. Sending a longer one is EMSGSIZE, here and at a peer,
  // which knows this limit.
  std::uint64_t max_message_bytes = std::uint64_t{1} << 30;
  // Messages up to this length are sent by Send, and each receive has room for that. Longer ones
  // stay in the sender's memory until the receiver reads them. The smaller value of both ends is
  // used.
  std::uint32_t eager_bytes = 8192;
  // Frames that a peer may send before their messages are handed over: then it waits. A frame is
  // one message, or several short ones that have waited together. Each credit costs a receive of
  // `eager_bytes` for each connection, in memory that is not touched before it is used. 1 to 32767.
  std::uint16_t credits = 32;
  // Messages and bytes of one connection that may wait to be sent. A send that exceeds them is
  // EAGAIN, and the callback `writable` follows. A single message may be longer than the limit.
  std::size_t send_queue_messages = 1024;
  std::uint64_t send_queue_bytes = std::uint64_t{64} << 20;
  // Memory of a loop for what peers send, in addition to the receives: long messages until they are
  // handed over and freed, and buffers that were kept. When it is used up, long messages wait at
  // their senders, and kept buffers are not replaced, so that the senders run out of credits. At
  // least `max_message_bytes`.
  std::uint64_t pool_bytes = std::uint64_t{1} << 30;
  // How long step() and run() poll the connections that were active last, before they sleep. A
  // message that comes meanwhile needs no wake-up, for either side. Where nothing has come, the
  // next times are left out, so an idle loop does not poll. 0: never.
  std::chrono::microseconds spin{50};
  // Connections of one listener, including requests that are neither accepted nor rejected yet.
  // Further requests are rejected, and the peer's error names this number.
  std::uint32_t max_connections = 16384;
};

// Pieces of one message. More are EINVAL.
inline constexpr std::size_t max_pieces = 16;
// Private data of the application, when it connects, accepts or rejects. More is EINVAL. The limit
// comes from rdma_connect(3) over InfiniBand, which has the least room.
inline constexpr std::size_t max_private_data_bytes = 32;

}  // namespace weft::message
