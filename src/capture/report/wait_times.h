// Remembers when a connection waited for packets that were sent again, and when it waited for a
// receiver that was not ready, so that the time of an exchange can be divided.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "weft/capture/connection.hpp"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/progress_sink.hpp"

namespace weft::capture {

// A set of disjoint spans of time, each with the frame that ended it.
class TimeSpans {
 public:
  // Returns by how many spans the set has grown; negative if the new span has joined others. The
  // frame of a span is that of the latest end.
  std::ptrdiff_t add(std::int64_t from_ns, std::int64_t to_ns, std::uint64_t frame);
  // There must be one.
  void remove_oldest() { spans_.erase(spans_.begin()); }
  // Returns how much of [from_ns, to_ns) is in the set.
  [[nodiscard]] std::int64_t within(std::int64_t from_ns, std::int64_t to_ns) const;
  // Returns how much of [from_ns, to_ns) is in this set, and not in the other one.
  [[nodiscard]] std::int64_t within_but_not(std::int64_t from_ns, std::int64_t to_ns,
                                            const TimeSpans& other) const;
  // Returns the frame of the last span that overlaps [from_ns, to_ns); 0 if there is none.
  [[nodiscard]] std::uint64_t last_frame(std::int64_t from_ns, std::int64_t to_ns) const;
  [[nodiscard]] std::size_t size() const { return spans_.size(); }

 private:
  struct End {
    std::int64_t time_ns = 0;
    std::uint64_t frame = 0;
  };
  template <typename Visit>
  void visit(std::int64_t from_ns, std::int64_t to_ns, const Visit& visit) const;

  std::map<std::int64_t, End> spans_;  // by begin
};

class WaitTimes final : public ProgressSink {
 public:
  // Older spans are dropped beyond these limits.
  static constexpr std::size_t most_spans = 1'024;  // of each kind of a connection
  static constexpr std::size_t most_spans_in_all = 262'144;

  // A receiver that is not ready sends RNR NAKs or closes its TCP window. The packets that are
  // sent again because of that do not count a second time.
  struct Parts {
    std::int64_t receives_ns = 0;  // until the receiver was ready
    std::int64_t repeats_ns = 0;   // until packets had been sent again
    // The frame with which the last wait of each kind ended; 0 without one.
    std::uint64_t ready_frame = 0;
    std::uint64_t repeated_frame = 0;
    // Of repeats_ns, the capture has the repetition only.
    bool lost_before_capture = false;
    [[nodiscard]] std::int64_t sum_ns() const { return receives_ns + repeats_ns; }
  };

  // `connections` must outlive this object.
  explicit WaitTimes(const ConnectionTable& connections) : connections_(connections) {}

  // Returns how the connection waited in [from_ns, to_ns).
  [[nodiscard]] Parts between(ConnectionId connection, std::int64_t from_ns,
                              std::int64_t to_ns) const;

  void on_repeat(const Origin& origin, std::uint64_t wire_bytes) override;
  void on_late(const Origin& origin, std::int64_t delay_ns) override;
  void on_refusal(const Origin& origin, const Refusal& refusal) override;
  void on_acknowledge(const Origin& origin, std::uint32_t psn) override;
  void on_window(const Origin& origin, bool open) override;
  void on_forget(ConnectionId connection) override;

 private:
  // The packet for which a side has sent RNR NAKs.
  struct NotReady {
    std::uint32_t psn = 0;
    std::int64_t since_ns = 0;
  };
  struct Half {
    std::optional<std::int64_t> last_ns;  // of its last packet with new content, or repeated one
    std::optional<NotReady> not_ready;
    std::optional<std::int64_t> window_closed_ns;
  };
  struct Waits {
    std::array<Half, 2> halves;
    TimeSpans receives;
    TimeSpans repeats;
    TimeSpans lost;  // of `repeats`, those for packets that were lost before the capture
  };

  void on_progress(const Origin& origin, std::uint64_t /*bytes*/) override {
    half(origin).last_ns = origin.stamp.time_ns;
  }
  Half& half(const Origin& origin) {
    return waits_.get(origin.connection).halves[origin.side == Side::a ? 0 : 1];
  }
  void add(TimeSpans& spans, std::int64_t from_ns, const Stamp& to);
  void add(TimeSpans& spans, std::int64_t from_ns, std::int64_t to_ns, std::uint64_t frame);

  const ConnectionTable& connections_;
  ConnectionMap<Waits> waits_;
  std::size_t spans_in_all_ = 0;
};

}  // namespace weft::capture
