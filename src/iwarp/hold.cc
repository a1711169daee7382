#include "iwarp/hold.h"

#include <algorithm>

namespace weft::iwarp {

// Only untagged messages are held, so the longer of the two headers is kept whole.
HeldMessage::HeldMessage(std::uint64_t number, std::uint32_t queue, const Segment& segment)
    : number_(number), queue_(queue) {
  std::ranges::copy_n(segment.raw_header.begin(), header_.size(), header_.begin());
  segment_bytes_ = segment.payload_bytes;
}

// The header was parsed when it arrived, so it can be parsed again.
Segment HeldMessage::segment() const {
  Segment segment;
  if (const auto header = wire::DdpUntagged::parse(header_)) segment.untagged_header = *header;
  segment.opcode = wire::rdmap_opcode(segment.untagged_header.rdmap_control);
  segment.payload_bytes = segment_bytes_;
  std::ranges::copy(header_, segment.raw_header.begin());
  return segment;
}

std::optional<std::uint32_t> HeldMessage::immediate_be() const {
  return has_immediate_ ? std::optional(immediate_be_) : std::nullopt;
}

// The header of the newest segment is the one that a Terminate quotes for this message.
void HeldMessage::add(const Segment& segment) {
  std::ranges::copy_n(segment.raw_header.begin(), header_.size(), header_.begin());
  segment_bytes_ = segment.payload_bytes;
  payload_bytes_ += segment.payload_bytes;
}

void HeldMessage::finish(std::optional<std::uint32_t> immediate_be) {
  has_immediate_ = immediate_be.has_value();
  immediate_be_ = immediate_be.value_or(0);
  complete_ = true;
}

void HeldMessage::finish_write(std::uint32_t immediate_be, std::uint32_t write_bytes) {
  finish(immediate_be);
  from_write_ = true;
  write_bytes_ = write_bytes;
}

std::size_t Hold::free_bytes() const {
  return limit_bytes_ - messages_.size() * message_cost_bytes - payload_.size();
}

// The whole cost of a message is taken when it begins, so that empty messages count as well.
bool Hold::begin(std::uint64_t number, std::uint32_t queue, const Segment& segment) {
  if (free_bytes() < message_cost_bytes) return false;
  messages_.emplace_back(number, queue, segment);
  return true;
}

bool Hold::extend(const Segment& segment) {
  if (free_bytes() < segment.payload_bytes) return false;
  payload_.extend(segment.payload_bytes);
  messages_.back().add(segment);
  return true;
}

// Payload of the newest message is at the end of the queue, because messages are held in order.
void Hold::map_newest(std::size_t at, std::size_t length, std::vector<iovec>& out) const {
  const std::size_t start = payload_.size() - messages_.back().payload_bytes();
  payload_.map(start + at, length, out);
}

std::span<const std::byte> Hold::oldest_payload(std::size_t at) const {
  const auto run = payload_.run(at);
  // The run may reach into the payload of the next message.
  return run.first(std::min<std::size_t>(run.size(), messages_.front().payload_bytes() - at));
}

void Hold::pop() {
  payload_.drop(messages_.front().payload_bytes());
  messages_.pop_front();
  ++removed_;
}

}  // namespace weft::iwarp
