// Two queue pairs of this process, connected by rdma_cm over loopback, through the C++ objects.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

#include "weft/verbs.hpp"

namespace weft::verbs::testing {

constexpr std::chrono::seconds patience{30};

struct EndSettings {
  ibv_qp_cap capacity{.max_send_wr = 64,
                      .max_recv_wr = 64,
                      .max_send_sge = 4,
                      .max_recv_sge = 4,
                      .max_inline_data = 64};
  Access access = Access::all;
  std::size_t bytes = 4096;
  std::uint8_t depth = 4;
};

// One side of a connection, with a region that the peer may access.
struct End {
  End(Id&& identifier, const EndSettings& settings);

  // Returns the next completion; fails the test after a timeout.
  Completion await();

  Id id;
  Context context;
  ProtectionDomain domain;
  CompletionChannel channel;
  CompletionQueue queue;
  TypedRegion<std::uint8_t> region;
  QueuePair queue_pair;
};

struct Pair {
  explicit Pair(const EndSettings& settings = {});

  EventChannel events;
  std::optional<End> a;  // active
  std::optional<End> b;  // passive
};

// Returns the next event; fails the test if it is of another type.
ConnectionEvent expect(const EventChannel& events, rdma_cm_event_type type);

}  // namespace weft::verbs::testing
