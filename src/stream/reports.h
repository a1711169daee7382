// Reports: which requests of a stream report a completion, and what each completion gives back.
//
// A completion tells that all requests before it are complete too, and costs more than the request
// itself over a network: the peer's device has to answer. So most messages report none, and a later
// one reports for them. How many may wait for it is bounded, so that a sender without room always
// has a completion to wait for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace weft::stream::detail {

// What requests hold until they complete.
struct Held {
  std::uint32_t ring_bytes = 0;  // of our send ring
  std::uint16_t messages = 0;    // places of data messages in the send queue
  std::uint8_t controls = 0;     // places of control messages there
  friend bool operator==(const Held&, const Held&) = default;
};

// Not thread-safe.
class Reports {
 public:
  // Messages that may wait for a report, of each kind. `messages` is at most most_messages.
  static constexpr std::uint16_t most_messages = 64;
  struct Limits {
    std::uint16_t messages = 0;
    std::uint8_t controls = 0;
  };
  explicit Reports(Limits limits) : limits_(limits) {}

  // A request that holds this much is about to be posted behind all others. Returns what its
  // completion gives back, or nothing if it is to be posted without one. `ring_bytes`: how many
  // bytes of the ring may wait for a report, those of this request included; 0 makes it report.
  [[nodiscard]] std::optional<Held> add(const Held& more, std::uint32_t ring_bytes);
  // Whether requests wait for the report of a later one.
  [[nodiscard]] bool any_wait() const { return waiting_ != Held{}; }

 private:
  Limits limits_;
  Held waiting_;
};

inline std::optional<Held> Reports::add(const Held& more, std::uint32_t ring_bytes) {
  // Each sum fits: a message is counted only while there are at most as many as the limits.
  waiting_.ring_bytes += more.ring_bytes;
  waiting_.messages = static_cast<std::uint16_t>(waiting_.messages + more.messages);
  waiting_.controls = static_cast<std::uint8_t>(waiting_.controls + more.controls);
  const bool waits = ring_bytes > 0 && waiting_.ring_bytes <= ring_bytes &&
                     waiting_.messages <= limits_.messages && waiting_.controls <= limits_.controls;
  if (waits) return std::nullopt;
  const Held reported = waiting_;
  waiting_ = {};
  return reported;
}

}  // namespace weft::stream::detail
