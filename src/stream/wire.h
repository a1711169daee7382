// The verbs objects of one stream, and how its messages are posted and polled.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stream/flow.h"
#include "stream/greeting_wire.h"
#include "weft/stream/options.hpp"
#include "weft/verbs.hpp"

namespace weft::stream::detail {

// What was posted, as it comes back with its completion.
struct Posted {
  enum class What : std::uint8_t {
    receive,  // `number` is the slot
    data,     // `number` bytes of our ring are free again
    control,
    probe,
    ignored,  // the write of a message whose send tells
  };
  What what = What::receive;
  std::uint32_t number = 0;

  [[nodiscard]] std::uint64_t to_id() const {
    return static_cast<std::uint64_t>(what) << 32 | number;
  }
  [[nodiscard]] static Posted from_id(std::uint64_t id) {
    return {static_cast<What>(id >> 32), static_cast<std::uint32_t>(id)};
  }
};

class Wire {
 public:
  // The id is bound to a device. Throws Error: EINVAL where the device has less than was asked for.
  Wire(const verbs::Id& id, const Options& options);

  // What to tell the peer.
  [[nodiscard]] StreamGreeting greeting(GreetingType type) const;
  [[nodiscard]] std::uint8_t variants() const { return variants_; }
  // How big what may be posted and received is, once the peer is known.
  [[nodiscard]] FlowSizes connect(const StreamGreeting& peer, std::uint8_t variant);
  [[nodiscard]] Variant variant() const {
    return immediate_ ? Variant::immediate : Variant::write_and_send;
  }

  [[nodiscard]] std::span<std::byte> send_ring() const {
    return send_ring_.elements().first(options_.send_buffer_bytes);
  }
  [[nodiscard]] std::span<std::byte> receive_ring() const {
    return receive_ring_.elements().first(options_.receive_buffer_bytes);
  }
  [[nodiscard]] std::span<const std::byte> row(std::uint32_t number) const;
  [[nodiscard]] const verbs::ProtectionDomain& domain() const { return domain_; }
  [[nodiscard]] const verbs::CompletionQueue& queue() const { return queue_; }
  [[nodiscard]] const verbs::CompletionChannel& channel() const { return channel_; }

  // Each answers 0 or an errno.
  // `bytes` go to that place of the peer's ring; `held` of our ring are given back with completion.
  [[nodiscard]] int post_data(const verbs::LocalSlice& bytes, std::uint32_t to, std::uint32_t held);
  [[nodiscard]] int post_piece(const Piece& piece) {
    return post_data(send_ring_.slice(piece.from, piece.bytes), piece.to, piece.bytes);
  }
  [[nodiscard]] int post_control(std::uint32_t word);
  // A row of the peer's table; `row` has row_bytes, and is taken during the call.
  [[nodiscard]] int post_row(std::uint32_t number, std::span<const std::byte> row);
  // Past the ring, into a buffer that the peer has mapped.
  [[nodiscard]] int post_aside(const Piece& piece, const verbs::RemoteSlice& to);
  [[nodiscard]] int post_probe();
  [[nodiscard]] int post_receive(std::uint32_t slot);
  // What the message says that has come into the slot.
  [[nodiscard]] std::uint32_t word_in(std::uint32_t slot) const;

 private:
  [[nodiscard]] int post_message(const verbs::LocalSlice& bytes, const verbs::RemoteSlice& to,
                                 std::uint32_t word, const Posted& posted);
  [[nodiscard]] verbs::LocalSlice slot(std::uint32_t number) const;

  Options options_;
  std::uint8_t variants_;
  bool immediate_ = true;
  verbs::ProtectionDomain domain_;
  verbs::CompletionChannel channel_;
  verbs::CompletionQueue queue_;
  verbs::TypedRegion<std::byte> send_ring_;     // and behind it a row for each of the peer's table
  verbs::TypedRegion<std::byte> receive_ring_;  // and the table behind it; the peer writes there
  verbs::TypedRegion<std::byte> slots_;         // a word for each receive
  verbs::QueuePair queue_pair_;
  verbs::RemoteSlice peer_ring_;
  verbs::RemoteSlice peer_table_;
};

}  // namespace weft::stream::detail
