#include "iwarp/hold.h"

namespace weft::iwarp {

bool Hold::begin(std::uint64_t number, const Segment& segment) {
  if (limit_bytes_ - used_bytes_ < message_cost_bytes) return false;
  used_bytes_ += message_cost_bytes;
  messages_.push_back({.segment = segment, .number = number});
  return true;
}

bool Hold::extend(const Segment& segment) {
  if (limit_bytes_ - used_bytes_ < segment.payload_bytes) return false;
  used_bytes_ += segment.payload_bytes;
  HeldMessage& newest = messages_.back();
  newest.segment = segment;
  newest.payload.resize(newest.payload.size() + segment.payload_bytes);
  return true;
}

void Hold::pop() {
  used_bytes_ -= message_cost_bytes + messages_.front().payload.size();
  messages_.pop_front();
  ++removed_;
}

}  // namespace weft::iwarp
