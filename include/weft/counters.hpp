// The counters of the embedded device. All of them only increase.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft {

struct Traffic {
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;
};

// One count for each ibv_wc_status, which is the index.
using StatusCounts = std::array<std::uint64_t, 24>;

struct QueuePairCounters {
  // Work requests that ibv_post_send(3) and ibv_post_recv(3) accepted, and the bytes of their
  // scatter/gather lists. Their outcomes are counted below.
  Traffic sends;
  Traffic writes;
  Traffic reads;
  Traffic atomics;
  Traffic local;  // binds of memory windows, local invalidations
  Traffic receives;
  // Messages that consumed a receive request here, and their bytes. The bytes of a write with
  // immediate data are counted in `peer_writes`.
  Traffic received;
  // Operations of the peer on memory here that are complete. Writes of zero bytes are not counted.
  Traffic peer_writes;
  Traffic peer_reads;
  Traffic peer_atomics;
  // Work completions that were added to completion queues. A successful unsignaled send has none.
  StatusCounts send_completions{};
  StatusCounts receive_completions{};
  // Repeated attempts to connect to a peer by GID and queue pair number.
  std::uint64_t connection_retries = 0;
  // Messages of the peer that found no receive request, and the sum of the times that they waited
  // for one.
  std::uint64_t rnr_waits = 0;
  std::uint64_t rnr_wait_ns = 0;
  // How often, and how long in total, the send queue waited because the peer's buffer for messages
  // without a receive request was full. Only if the peer is an embedded device as well.
  std::uint64_t credit_waits = 0;
  std::uint64_t credit_wait_ns = 0;
  // Bytes that the peer sent where an empty response was due, to a read by which the device asks
  // whether earlier requests are placed. They were discarded. The kernel's siw sends some.
  std::uint64_t discarded_answer_bytes = 0;
};

struct CompletionQueueCounters {
  StatusCounts completions{};
  std::uint64_t polled = 0;
  std::uint64_t events = 0;  // sent to the completion channel
  std::uint64_t lost = 0;    // dropped because the queue was full
};

// Operations of peers on one memory region through its own rkey; those through a memory window are
// not included.
struct MemoryRegionCounters {
  Traffic peer_writes;
  Traffic peer_reads;
  Traffic peer_atomics;
};

}  // namespace weft
