// What the embedded device counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft {

struct Traffic {
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;
};

// By ibv_wc_status.
using StatusCounts = std::array<std::uint64_t, 24>;

struct QueuePairCounters {
  // Accepted by ibv_post_send(3) and ibv_post_recv(3): how many, and the bytes of their lists. What
  // became of them is below.
  Traffic sends;
  Traffic writes;
  Traffic reads;
  Traffic atomics;
  Traffic local;  // binds of memory windows, local invalidations
  Traffic receives;
  // Messages that have taken a receive here, and their bytes; what a write with immediate has
  // written is counted with the peer's writes.
  Traffic received;
  // What the peer has done in memory here, messages that are whole; writes of no bytes are none.
  Traffic peer_writes;
  Traffic peer_reads;
  Traffic peer_atomics;
  // That went to completion queues. Sends that succeed unsignaled have none.
  StatusCounts send_completions{};
  StatusCounts receive_completions{};
  // How often a connection by GID and number was tried again.
  std::uint64_t connection_retries = 0;
  // Messages of the peer that found no receive, and how long they waited for one, together.
  std::uint64_t rnr_waits = 0;
  std::uint64_t rnr_wait_ns = 0;
  // How often, and how long, the send queue waited for room in what the peer can hold of messages
  // without a receive. Only towards another embedded device.
  std::uint64_t credit_waits = 0;
  std::uint64_t credit_wait_ns = 0;
};

struct CompletionQueueCounters {
  StatusCounts completions{};
  std::uint64_t polled = 0;
  std::uint64_t events = 0;  // raised on the completion channel
  std::uint64_t lost = 0;    // found the queue full
};

// What peers have done in a memory region, by its own rkey.
struct MemoryRegionCounters {
  Traffic peer_writes;
  Traffic peer_reads;
  Traffic peer_atomics;
};

}  // namespace weft
