// What lies in the memory that the two processes of a pair share (process_pair.h), once for each
// direction: bells, and messages that need no socket. The process that reads it is called its owner
// here; the other one writes, and nothing that it writes is trusted.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace weft::device {

// What a thread of the owner does that waits for an event of the connection manager: see
// PairWait. The kernel compares this word before the thread sleeps (futex(2)).
enum class Waiting : std::uint32_t {
  none,    // no thread waits: a message on the channel wakes the progress thread
  looks,   // the thread reads `pending` again and again: the peer sends no message
  sleeps,  // the thread sleeps: the peer wakes it by futex(2)
};

// Messages without descriptors, as they would lie in the channel. Their order to those of the
// channel is kept: none is put here while one that was sent before over the channel has not been
// handled, and the owner handles all that are here before it handles one of the channel.
struct PairMail {
  static constexpr std::uint32_t places = 8;
  static constexpr std::size_t most_bytes = 1008;

  struct Place {
    std::atomic<std::uint64_t> stamp{0};  // the number of the message, from 1 on; written last
    std::uint32_t bytes = 0;
    std::array<std::byte, most_bytes> message{};
  };

  // Written by the owner.
  alignas(64) std::atomic<std::uint32_t> open{0};  // not 0: it looks here
  std::atomic<std::uint64_t> taken{0};             // messages from here
  std::atomic<std::uint64_t> handled{0};           // messages of the channel, other than bells
  // Written by the peer.
  alignas(64) std::array<Place, places> ring{};
};

// The ends that are to look at their connection.
struct PairBells {
  static constexpr std::uint32_t most_connections = 1U << 14;
  static constexpr std::uint32_t words_count = most_connections / 64;

  // Not 0: the owner was woken for what is new here, or looks by itself. Set behind that, and reset
  // by the owner before it looks.
  std::atomic<std::uint32_t> pending{0};
  alignas(64) std::atomic<Waiting> waiting{Waiting::none};  // written by the owner
  alignas(64) std::array<std::atomic<std::uint64_t>, words_count / 64> summary{};
  std::array<std::atomic<std::uint64_t>, words_count> words{};
  PairMail mail;
};

// The end that writes messages. Not thread-safe.
class PairMailWriter {
 public:
  // False: there is no room for it, or the owner takes none yet. Use the channel.
  [[nodiscard]] bool put(PairMail& mail, Bytes header, Bytes frame);
  // A message was sent over the channel, or will be.
  void sent_by_channel() { ++by_channel_; }

 private:
  std::uint64_t put_ = 0;
  std::uint64_t by_channel_ = 0;
};

// The owner. Not thread-safe.
class PairMailReader {
 public:
  // The next message, as a copy that the peer cannot change. An empty one is wrong.
  [[nodiscard]] std::optional<std::vector<std::byte>> take(PairMail& mail);
  // A message of the channel was handled.
  void handled_of_channel(PairMail& mail);

 private:
  std::uint64_t taken_ = 0;
  std::uint64_t of_channel_ = 0;
};

}  // namespace weft::device
