// RDMA traffic written by hand: a list of calls of a TrafficSink, which can be fed whole,
// without one of its events, twice, or mixed with another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "weft/capture/traffic.hpp"

namespace weft::capture::test {

using Buffer = std::vector<std::byte>;

struct Event {
  Origin origin;
  std::variant<SendPart, WritePart, ReadRequest, ReadPart> part;
  Buffer bytes;  // what `part` carries

  void feed(TrafficSink& sink) const;
  [[nodiscard]] bool data() const { return !std::holds_alternative<SendPart>(part); }
};

class TrafficScript {
 public:
  explicit TrafficScript(ConnectionId connection = 0, std::size_t part_bytes = 1024)
      : connection_(connection), part_bytes_(part_bytes) {}

  TrafficScript& send(Side side, Buffer message);
  TrafficScript& write(Side side, std::uint32_t key, std::uint64_t address, const Buffer& bytes);
  // The request of `side`, and the answer of the other one.
  TrafficScript& read(Side side, std::uint32_t key, std::uint64_t address, const Buffer& bytes);
  TrafficScript& read_request(Side side, std::uint32_t key, std::uint64_t address,
                              std::uint64_t length);
  TrafficScript& read_answer(Side side, std::uint32_t key, std::uint64_t address,
                             const Buffer& bytes);
  TrafficScript& wait_ns(std::int64_t time_ns) {
    time_ns_ += time_ns;
    return *this;
  }

  std::vector<Event> events;

  void feed(TrafficSink& sink) const {
    for (const Event& event : events) event.feed(sink);
  }
  void feed_without(std::size_t dropped, TrafficSink& sink) const;
  // The frame of the event before which the script stands now.
  [[nodiscard]] std::uint64_t next_frame() const { return frame_ + 1; }

 private:
  Origin origin(Side side);
  template <typename Part, typename Fill>
  void parts(Side side, const Buffer& bytes, Fill fill);

  ConnectionId connection_;
  std::size_t part_bytes_;
  std::uint64_t frame_ = 0;
  std::int64_t time_ns_ = 0;
  std::uint64_t message_ = 0;
};

}  // namespace weft::capture::test
