// Reports connections that stand still: silence while a request was outstanding, retries that
// nothing answered, and receivers that closed their TCP window.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/capture/connection.hpp"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/progress_sink.hpp"

namespace weft::capture {

namespace finding {
inline constexpr std::string_view silence = "silence";
inline constexpr std::string_view retries_exhausted = "retries-exhausted";
inline constexpr std::string_view zero_window = "zero-window";
}  // namespace finding

class StallFindings final : public ProgressSink, public OperationSink {
 public:
  static constexpr std::size_t max_frames = 16;

  // Both must outlive this object.
  StallFindings(const ConnectionTable& connections, FindingSink& sink)
      : connections_(connections), sink_(&sink) {}

  void on_operation(const Operation& operation) override;
  void on_repeat(const Origin& origin, std::uint64_t wire_bytes) override;
  void on_acknowledge(const Origin& origin, std::uint32_t psn) override;
  void on_atomic_answer(const Origin& origin, const AtomicAnswer& answer) override;
  void on_received(const Origin& origin, std::uint64_t position) override;
  void on_refusal(const Origin& origin, const Refusal& refusal) override;
  void on_window(const Origin& origin, bool open) override;
  void on_window_probe(const Origin& origin) override;
  void on_end(const Origin& origin, bool reset) override;
  void on_close(ConnectionId connection) override;
  void on_forget(ConnectionId connection) override { pairs_.erase(connection); }
  // Ends the trace: reports one finding for each kind of stall of each side.
  void finish();
  // Reports to `sink` what was collected so far, and keeps it.
  void report_so_far(FindingSink& sink);

 private:
  struct Tally {
    std::uint64_t count = 0;
    std::int64_t total_ns = 0;
    std::int64_t longest_ns = 0;
    std::vector<Stamp> stamps;

    void add(const Stamp& begin, const Stamp& end);
  };
  // Repetitions since the other side sent anything.
  struct Retries {
    std::uint64_t rounds = 0;
    std::uint64_t first_position = 0;
    std::vector<Stamp> stamps;  // of the first packet of each round
  };
  struct Half {
    Retries retries;
    Tally silences;
    std::optional<Stamp> window_closed;
    Tally closed_windows;
    std::uint64_t probes = 0;  // of the other side, while the window was closed
  };
  struct Pair {
    std::array<Half, 2> halves;
    std::optional<Stamp> last;  // the last event of either side
    // The events before and after the last silence that is not in a tally yet.
    std::optional<std::array<Stamp, 2>> silence;
  };

  void on_progress(const Origin& origin, std::uint64_t bytes) override;
  static void note(Pair& pair, const Stamp& stamp);
  // Something of `origin.side` was seen.
  Pair& note(const Origin& origin);
  // The same, and it shows that the side answers: retries of the other side have ended.
  void note_answer(const Origin& origin);
  void report(const Connection& connection, Side side, const Half& half);
  void report_retries(const Connection& connection, Side side, const Retries& retries);

  const ConnectionTable& connections_;
  FindingSink* sink_;
  ConnectionMap<Pair> pairs_;
};

}  // namespace weft::capture
