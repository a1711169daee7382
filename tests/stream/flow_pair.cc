#include "stream/flow_pair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace weft::stream::detail {
namespace {

std::uint8_t byte_at(std::uint64_t position) {
  return static_cast<std::uint8_t>(position * 0x9E37U >> 5);
}

FlowSizes flow_sizes(const FlowPairSizes& sizes) {
  return {.send_ring_bytes = sizes.send_ring_bytes,
          .sends = sizes.sends,
          .peer_ring_bytes = sizes.receive_ring_bytes,
          .peer_receives = sizes.receives,
          .receive_ring_bytes = sizes.receive_ring_bytes,
          .receives = sizes.receives,
          .send_part_bytes = sizes.part_bytes,
          .peer_part_bytes = sizes.part_bytes,
          .receive_part_bytes = sizes.part_bytes};
}

}  // namespace

// Also where the send queue is so short that each message has to report.
FlowPair::Side::Side(const FlowSizes& sizes)
    : flow(sizes),
      reports({.messages = static_cast<std::uint16_t>(std::min(sizes.sends / 4, 64U)),
               .controls = max_control_sends / 4}),
      ring(sizes.receive_ring_bytes) {}

FlowPair::FlowPair(const FlowPairSizes& sizes, std::uint64_t bytes_from_a,
                   std::uint64_t bytes_from_b, std::uint64_t seed)
    : random_(seed) {
  for (const auto bytes : {bytes_from_a, bytes_from_b}) {
    sides_.emplace_back(flow_sizes(sizes)).to_send = bytes;
  }
}

bool FlowPair::send(Side& from) {
  if (from.sent == from.to_send) {
    if (from.flow.finished()) return false;
    from.flow.finish();
    return true;
  }
  if (const auto word = from.flow.take_growth()) {
    post(from, {*word, 0, {}}, {.messages = 1}, 0);
    ++from.counts.growths;
    return true;
  }
  const bool could = from.flow.can_send();
  const auto left =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(from.to_send - from.sent, 1U << 30));
  const auto wanted =
      static_cast<std::uint32_t>(random_.chance(2) ? left : random_.between(1, left));
  const Piece piece = from.flow.take(wanted);
  EXPECT_EQ(could, piece.bytes > 0);
  if (piece.bytes == 0) return false;
  Message message{encode(Kind::data, piece.bytes), piece.to, {}};
  for (std::uint32_t i = 0; i < piece.bytes; ++i) message.bytes.push_back(byte_at(from.sent++));
  post(from, std::move(message), {.ring_bytes = piece.bytes, .messages = 1},
       from.flow.own_part_bytes() / 4);
  ++from.counts.data;
  return true;
}

void FlowPair::post(Side& from, Message message, const Held& held, std::uint32_t may_wait) {
  from.outgoing.push_back(std::move(message));
  from.completions.push_back(from.reports.add(held, may_wait));
  // A message uses a receive until it is delivered, which is when the receive is posted again.
  EXPECT_LE(from.outgoing.size(), from.flow.sizes().peer_receives + control_receives)
      << "a message meets no receive";
}

bool FlowPair::control(Side& from) {
  const auto word = from.flow.next_control();
  if (!word) return false;
  post(from, {*word, 0, {}}, {.controls = 1},
       is_update(*word) && !from.flow.finished() ? max_piece_bytes : 0);
  if (is_update(*word)) {
    const Update update = update_of(*word);
    const bool alone = update.bytes == 0 && update.receives == 0;
    ++(alone ? from.counts.acknowledgements : from.counts.updates);
  }
  return true;
}

bool FlowPair::deliver(Side& from, Side& to) {
  if (from.outgoing.empty()) return false;
  const Message message = std::move(from.outgoing.front());
  from.outgoing.pop_front();
  EXPECT_LE(message.at + message.bytes.size(), to.ring.size()) << "a write beyond the ring";
  std::ranges::copy(message.bytes, to.ring.begin() + message.at);
  EXPECT_TRUE(to.flow.received(message.word, static_cast<std::uint32_t>(message.bytes.size())));
  EXPECT_LE(to.flow.readable(), to.ring.size());
  return true;
}

bool FlowPair::complete_one(Side& side) {
  if (side.completions.size() <= side.outgoing.size())
    return false;  // only delivered messages complete
  if (const auto held = side.completions.front()) {
    side.flow.sent(held->ring_bytes, held->messages);
    side.flow.control_sent(held->controls);
  }
  side.completions.pop_front();
  return true;
}

bool FlowPair::read(Side& side, bool greedy) {
  const auto [at, most] = side.flow.unread();
  if (most == 0) return false;
  const auto bytes = greedy ? most : static_cast<std::uint32_t>(random_.between(1, most));
  for (std::uint32_t i = 0; i < bytes; ++i) {
    if (side.ring[at + i] != byte_at(side.received + i)) {
      ADD_FAILURE() << "wrong byte at " << side.received + i;
      return false;
    }
  }
  side.received += bytes;
  side.flow.read(bytes);
  return true;
}

bool FlowPair::step(int action, bool greedy) {
  Side& one = sides_[action % 2];
  Side& other = sides_[1 - action % 2];
  switch (action / 2) {
    case 0:
      return send(one);
    case 1:
      return control(one);
    case 2:
      return deliver(one, other);
    case 3:
      return complete_one(one);
    default:
      return read(one, greedy);
  }
}

void FlowPair::run(bool greedy) {
  constexpr int actions = 10;
  while (!testing::Test::HasFailure()) {
    const int first = static_cast<int>(random_.below(actions));
    int tried = 0;
    while (tried < actions && !step((first + tried) % actions, greedy)) ++tried;
    if (tried == actions) return;
  }
}

bool FlowPair::complete() const {
  for (int i = 0; i < 2; ++i) {
    const Side& side = sides_[i];
    if (side.received != sides_[1 - i].to_send || !side.flow.end_received() ||
        !side.flow.all_sent() || !side.outgoing.empty() || side.flow.control_waits()) {
      return false;
    }
  }
  return true;
}

}  // namespace weft::stream::detail
