// How long the requests of a queue pair take, from their post to their completion, and how long its
// TCP connection has no room for more. Both are measured only while `weft top` is connected.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "live/latency_histogram.h"

namespace weft::device {

// What is measured apart. Binds of windows and local invalidations are not measured.
enum class LatencyKind : std::uint8_t { send, write, read, atomic };
inline constexpr std::size_t latency_kinds = 4;

// The queue pair's lock covers it.
class RequestLatencies {
 public:
  // `outstanding`: requests that were posted before, and whose completions are still to come. Their
  // latencies are unknown.
  explicit RequestLatencies(std::uint64_t outstanding) : open_(outstanding) {}

  void posted(ibv_wr_opcode opcode, std::uint64_t now_ns);
  // A completion that covers this many requests, the oldest ones, is becoming visible. The latency
  // of the last one counts: the others were unsignaled, so that it is not known when they were
  // done.
  void completed(std::uint64_t covered, bool success, std::uint64_t now_ns);
  // The oldest requests will have no completion.
  void forget(std::uint64_t requests);
  void forget_all() { open_.clear(); }

  // Whether the connection waits for room in TCP from now on. Does nothing where that is known.
  void waits_for_room(bool waits);
  // All waits, with the one that lasts.
  [[nodiscard]] std::uint64_t room_wait_ns(std::uint64_t now_ns) const {
    const bool lasts = room_since_ns_ != 0 && now_ns > room_since_ns_;
    return room_wait_ns_ + (lasts ? now_ns - room_since_ns_ : 0);
  }

  // Null where no request of the kind has completed.
  [[nodiscard]] const live::LatencyHistogram* of(LatencyKind kind) const {
    return histograms_[static_cast<std::size_t>(kind)].get();
  }

 private:
  struct Open {
    std::uint64_t posted_ns = 0;  // 0: not known
    std::optional<LatencyKind> kind;
  };

  std::deque<Open> open_;
  std::uint64_t room_since_ns_ = 0;  // 0: it does not wait
  std::uint64_t room_wait_ns_ = 0;   // the waits that are over
  std::array<std::unique_ptr<live::LatencyHistogram>, latency_kinds> histograms_;
};

}  // namespace weft::device
