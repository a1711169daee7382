// RequestId: the wr_id of a work request, which says what its completion gives back.
#pragma once

#include <cstdint>

#include "stream/reports.h"

namespace weft::stream::detail {

struct RequestId {
  enum class Kind : std::uint8_t {
    receive,
    sent,  // messages or writes: `held` is given back
    probe,
    ignored,  // a later request reports for it
  };
  Kind kind = Kind::receive;
  Held held;
  std::uint32_t slot = 0;  // of a receive

  [[nodiscard]] static RequestId receive(std::uint32_t slot) { return {Kind::receive, {}, slot}; }
  [[nodiscard]] static RequestId sent(const Held& held) { return {Kind::sent, held, 0}; }
  [[nodiscard]] static RequestId other(Kind kind) { return {kind, {}, 0}; }

  [[nodiscard]] std::uint64_t encode() const {
    const std::uint32_t low = kind == Kind::receive ? slot : held.ring_bytes;
    return static_cast<std::uint64_t>(kind) << 56 | std::uint64_t{held.controls} << 48 |
           std::uint64_t{held.messages} << 32 | low;
  }
  [[nodiscard]] static RequestId decode(std::uint64_t id) {
    const auto low = static_cast<std::uint32_t>(id);
    const auto kind = static_cast<Kind>(id >> 56);
    if (kind == Kind::receive) return receive(low);
    return {
        kind, {low, static_cast<std::uint16_t>(id >> 32), static_cast<std::uint8_t>(id >> 48)}, 0};
  }
};

}  // namespace weft::stream::detail
