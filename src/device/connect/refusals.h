// Counts the connections that a device did not let in, and those that it has ended because of what
// the peer did, for its statistics.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::device {

struct Refusals {
  using Count = std::atomic<std::uint64_t>;

  Count timed_out{0};  // no MPA request in time
  Count malformed{0};  // no MPA, or closed by the peer within its request
  Count closed{0};     // closed by the peer before its first byte; where two ends dial each
                       // other at once, one of them does that
  Count evicted{0};    // silent, and closed to make room for another one
  Count out_of_descriptors{0};  // times that accept(2) failed for want of something
  Count reset{0};               // refused connections that were cut off, as too many lingered
  Count not_ready{0};           // requests for queue pairs that are not ready to receive yet
  Count refused{0};             // requests for a queue pair that does not exist or has another peer
  Count strangers{0};           // requests from addresses that no queue pair expects
  Count wrong_psn{0};           // the right address and numbers, and other PSNs
  Count other_user{0};          // from this host, and from another user
  Count answered_early{0};      // answers to strangers that did not wait, as too many waited
  Count no_first_fpdu{0};       // accepted by the program, and then silent (rdma_cm)
  // Service queries (SIDR), which UD programs of rdma_cm resolve addresses by.
  Count queries_malformed{0};  // datagrams that are none
  Count queries_ignored{0};    // requests beyond what the program has not answered yet
  // Established connections.
  Count silent{0};                // given up because the peer's host did not answer
  Count terminated_access{0};     // a wrong STag, bound, right or protection domain
  Count terminated_no_buffer{0};  // a Send without a receive or room to wait, too many reads
  Count terminated_other{0};      // any other Terminate that was sent
  // Processes of this host, and the Unix sockets of the device.
  Count local_other_user{0};  // connections of other users, which were closed
  Count local_dropped{0};     // connections of this user that none took, and that were too many
  Count local_refused{0};     // offers and requests that were not taken: they stay on TCP
  Count local_violations{0};  // pairs of processes that ended, because the peer broke a rule
  Count top_refused{0};       // clients of `weft top` beyond the limit, and silent ones
};

}  // namespace weft::device
