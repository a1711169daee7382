// Which findings about an altered capture are true: those that the alterations prove, and those
// about the original.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capture/alterations.h"
#include "weft/capture/connection.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/rpc.hpp"

namespace weft::capture::test {

// What an analysis has reported about a capture.
struct Reported {
  // Frames of an RPC.
  struct Exchange {
    ConnectionId connection = 0;
    Side caller = Side::a;
    std::uint32_t xid = 0;
    struct Message {
      std::uint64_t first = 0;
      std::uint64_t last = 0;
    };
    std::optional<Message> call;
    std::optional<Message> reply;
  };

  const ConnectionTable& connections;
  std::vector<Finding> findings;
  std::vector<Operation> operations;
  std::vector<Exchange> exchanges;

  void add(const Rpc& rpc);
};

class DamageProofs {
 public:
  // All must outlive the object. The frames of `original` are numbers of packets, from 1.
  // `moved`: packets have moved by less than this number of places.
  DamageProofs(const Reported& original, const Reported& altered, const Alterations& alterations,
               std::size_t moved)
      : original_(original), altered_(altered), alterations_(alterations), moved_(moved) {}

  // Returns whether the alterations are the reason for the finding, or it is about the original as
  // well.
  [[nodiscard]] bool explain(const Finding& finding) const;
  // Returns whether the altered capture has a Read of the rest of `whole`, and not its request: the
  // requester has asked for the rest, because packets of the response were lost.
  [[nodiscard]] bool lacks_request(const Operation& whole) const;

 private:
  [[nodiscard]] bool is_in_original(const Finding& finding) const;
  [[nodiscard]] bool explain_exchange(const Finding& finding, const Connection& connection) const;
  [[nodiscard]] bool explain_unanswered(const Connection& connection, Side side) const;
  [[nodiscard]] bool is_reason(const Operation& unanswered, const Connection& connection) const;
  [[nodiscard]] bool is_silent(const Connection& connection, Side side) const;
  [[nodiscard]] std::optional<Side> side_in(const Finding& finding,
                                            const Connection& connection) const;

  const Reported& original_;
  const Reported& altered_;
  const Alterations& alterations_;
  std::size_t moved_;
};

}  // namespace weft::capture::test
