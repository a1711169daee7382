// What findings about one connection need to know about all others of the capture. It is collected
// in one pass over the table, when it is first needed: a pass for each connection would take a time
// that grows with the square of their number.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "weft/capture/connection.hpp"
#include "weft/capture/host_address.hpp"

namespace weft::capture {

class TableSummary {
 public:
  // `connections` must outlive the object. What changes there after the first question is not seen.
  explicit TableSummary(const ConnectionTable& connections) : connections_(connections) {}

  // Returns the time of the last packet of all connections.
  [[nodiscard]] std::int64_t last_ns();
  // Returns whether the capture has packets from the requester to the other host of the
  // connection, on a later connection, and none back: then the reply is missing in the capture,
  // too.
  [[nodiscard]] bool lacks_replies(const Connection& requested);
  // Returns whether the capture may lack the answer. A requester without one repeats its request
  // (InfiniBand specification, §12.9.8.5), and this one has not, although the capture goes on.
  [[nodiscard]] bool lacks_repeats(const Connection& requested);
  // Returns whether the capture has packets that may be those of the silent side: packets of
  // InfiniBand name the receiving queue pair only, and too few of them show which connection they
  // belong to.
  [[nodiscard]] bool may_have_packets(const Connection& connection, Side silent);
  // Weft's devices open connections without rdma_cm. If both ends dial, one of two requests that
  // cross is rejected, and a queue pair that is not ready yet rejects a request that is repeated
  // later. A request that crosses is refused if the queue pairs are connected when it comes.
  // Returns whether the connection is such a part of one that succeeds, or that is reported for
  // another reason.
  [[nodiscard]] bool is_attempt_of_device(const Connection& rejected);

 private:
  using Senders = std::tuple<Transport, HostAddress, HostAddress>;

  void collect();
  void add_device(const Connection& connection);
  // Returns the sender and the receiver of a connection that has packets of one side, of which the
  // own queue pair is unknown.
  [[nodiscard]] static Senders senders_of(const Connection& connection);
  [[nodiscard]] static bool has_unknown_sender(const Connection& connection);

  const ConnectionTable& connections_;
  bool collected_ = false;
  std::int64_t last_ns_ = 0;
  // The last first frame of the connections without packets from the first host to the second one.
  std::map<std::pair<HostAddress, HostAddress>, std::uint64_t> silent_;
  std::map<Senders, std::size_t> unknown_senders_;
  // Queue pair numbers of accepted connections of Weft's devices, the lower one first.
  std::set<std::pair<std::uint32_t, std::uint32_t>> devices_;
};

}  // namespace weft::capture
