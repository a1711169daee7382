// What happened in a device between two of its reports.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/top_source.h"
#include "live/latency_histogram.h"

namespace weft::cli {

// For a queue pair, or the sums of a device.
struct TopFigures {
  double operations = 0;  // a second, that the program has posted: Sends, Writes, Reads, atomics
  double out = 0;         // bytes a second that left, also by the peer's Reads
  double in = 0;          // and that came, also by the peer's Writes
  live::LatencyHistogram latencies;  // of signaled requests, from post to completion
  std::uint64_t send_depth = 0;      // requests whose completions are not polled
  std::uint64_t send_size = 0;
  std::uint64_t receive_depth = 0;
  std::uint64_t receive_size = 0;
  // A wait: its part of the time, 1 for all of it, more where several queue pairs wait; and how
  // many wait now.
  struct Wait {
    double share = 0;
    std::uint64_t now = 0;
  };
  enum Cause : std::uint8_t { connection, peer, tcp, receive };
  static constexpr std::size_t causes = 4;
  std::array<Wait, causes> waits{};

  void add(const TopFigures& other);
  [[nodiscard]] double waiting() const;
};

// "connection", "peer", "tcp" or "receive".
[[nodiscard]] std::string_view name_of(TopFigures::Cause cause);

struct TopQueuePair {
  std::uint64_t number = 0;
  std::string type;
  std::string state;
  std::string carrier;
  std::string peer;
  TopFigures figures;
};

struct TopDevice {
  pid_t pid = 0;
  std::string program;
  std::string device;
  std::string address;
  std::string why;  // it has not answered; empty: it has
  double seconds = 0;
  std::uint64_t connected = 0;  // queue pairs
  std::uint64_t skipped = 0;    // queue pairs that were locked for long, and are not listed
  std::uint64_t completion_depth = 0;
  TopFigures figures;
  std::vector<TopQueuePair> queue_pairs;
};

// `before`: the report of the same device, or null, where there are no rates yet. A report that
// lacks something is read as if that were 0.
[[nodiscard]] TopDevice rates(const nlohmann::json& before, const TopAnswer& now);

}  // namespace weft::cli
