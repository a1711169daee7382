// A queue pair as `weft top` shows it: what waits in it now, and its latencies.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/queue_pair/carrier.h"
#include "device/trace/request_latencies.h"

namespace weft::device {

struct LiveQueuePair {
  ibv_gid peer{};                   // the address of the other end; zero while there is none
  std::uint32_t send_depth = 0;     // requests whose completions the program has not polled
  std::uint32_t send_size = 0;      // the most of these
  std::uint32_t receive_depth = 0;  // the same of receives, of a shared queue those of all users
  std::uint32_t receive_size = 0;
  bool shared_receives = false;
  bool awaits_connection = false;  // requests are posted, and there is no connection
  Carrier::Waits waits;
  // Since the latencies are taken: the times without room in TCP, and for each LatencyKind the
  // counts of the buckets of LatencyHistogram that are not empty.
  std::uint64_t room_wait_ns = 0;
  using Buckets = std::vector<std::pair<std::size_t, std::uint64_t>>;
  std::array<Buckets, latency_kinds> latencies{};
};

}  // namespace weft::device
