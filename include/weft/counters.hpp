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
  // Sends of the peer that arrived whole and that no receive request took: they waited for one when
  // the connection ended, or came after rdma_disconnect(3), or after a request that was refused.
  // Their sender sees no success, if it is an embedded device as well.
  Traffic unreceived;
  // Successful completions of receives that the program had not polled when it destroyed the queue
  // pair or reset it, which removes them. Their sender has seen a success.
  std::uint64_t unpolled_receives = 0;
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

// A device as a whole: what `weft top` adds up, and what WEFT_STATS reports beside the objects.
struct DeviceCounters {
  // Connections that the device did not let in, and those that it has ended because of what the
  // peer did; docs/security.md has the limits behind them.
  struct Refusals {
    std::uint64_t timed_out = 0;           // no whole MPA request in time
    std::uint64_t malformed = 0;           // something else than an MPA request
    std::uint64_t closed = 0;              // by the peer, before its first byte
    std::uint64_t evicted = 0;             // silent, and closed to make room for others
    std::uint64_t out_of_descriptors = 0;  // times that accept(2) failed for want of something
    std::uint64_t reset = 0;               // refused ones that were cut off: too many lingered
    // Requests for queue pairs, by the reason of the refusal.
    std::uint64_t not_ready = 0;       // the queue pair is not ready to receive yet
    std::uint64_t refused = 0;         // it does not exist, or has another peer
    std::uint64_t strangers = 0;       // no queue pair expects the peer's address
    std::uint64_t wrong_psn = 0;       // the right address and numbers, and other PSNs
    std::uint64_t other_user = 0;      // of another user of this host
    std::uint64_t answered_early = 0;  // answers that did not wait, because too many waited
    // Datagrams to listening ids of rdma_cm that ask for a UD queue pair (SIDR).
    std::uint64_t queries_malformed = 0;  // something else
    std::uint64_t queries_ignored = 0;    // more than the backlog of the listening id
    // Established connections.
    std::uint64_t no_first_fpdu = 0;         // rdma_cm's, whose peer was silent after the accept
    std::uint64_t silent = 0;                // given up because the peer's host did not answer
    std::uint64_t terminated_access = 0;     // a Terminate for a wrong STag, bound, right or domain
    std::uint64_t terminated_no_buffer = 0;  // for a Send without a receive, or too many reads
    std::uint64_t terminated_other = 0;      // for anything else
    // Of processes of this host that connect to the Unix sockets of the device.
    std::uint64_t local_other_user = 0;  // of another user
    std::uint64_t local_dropped = 0;     // of this user, and too many that no connection took
    std::uint64_t local_refused = 0;     // offers to leave TCP, and requests, that were not taken
    std::uint64_t local_violations = 0;  // pairs of processes whose peer broke a rule; they ended
    std::uint64_t top_refused = 0;       // clients of `weft top` that were too many, or were silent
  };
  // Unreliable datagrams that were dropped, and those with a wrong ICRC, which are delivered.
  struct Datagrams {
    std::uint64_t malformed = 0;
    std::uint64_t no_queue_pair = 0;
    std::uint64_t wrong_queue_key = 0;
    std::uint64_t no_receive = 0;
    std::uint64_t wrong_icrc = 0;
  };
  // What a slower network (DeviceOptions::link) has done; zeros without one.
  struct Link {
    std::uint64_t delayed_bytes = 0;
    std::uint64_t stalls = 0;  // of connections, for the resending of what was lost
    std::uint64_t lost_datagrams = 0;
  };

  QueuePairCounters queue_pairs;  // the sums over all queue pairs, the destroyed ones as well
  std::uint64_t queue_pairs_created = 0;
  std::uint64_t queue_pairs_destroyed = 0;
  CompletionQueueCounters completion_queues;  // likewise
  std::uint64_t completion_queues_created = 0;
  std::uint64_t completion_queues_destroyed = 0;
  Refusals refusals;
  Datagrams datagrams;
  Link link;
  std::uint64_t faults = 0;         // what DeviceOptions::faults made fail
  std::uint64_t beyond_limits = 0;  // calls that a limit of the device, or of `adapter`, refused
};

}  // namespace weft
