// Chooses the exchanges that a page shows in detail: the first, the slowest and the failed ones of
// each connection, each with the operations that belong to it. An exchange is an RPC, or an
// operation with its neighbours on connections without RPCs.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "weft/capture/operation.hpp"
#include "weft/capture/rpc.hpp"
#include "weft/capture/storage.hpp"

namespace weft::capture {

// The part of an operation that a page stores.
struct PageOperation {
  PageOperation() = default;
  explicit PageOperation(const Operation& operation);

  Stamp start;
  Stamp end;
  Stamp confirmation;  // frame 0: not confirmed
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
  ConnectionId connection = 0;
  Operation::Kind kind = Operation::Kind::send;
  Operation::Outcome outcome = Operation::Outcome::complete;
  Side side = Side::a;

  [[nodiscard]] std::int64_t done_ns() const {
    return confirmation.frame != 0 ? confirmation.time_ns : end.time_ns;
  }
  [[nodiscard]] bool good() const { return outcome == Operation::Outcome::complete; }
};

struct PageExchange {
  ConnectionId connection = 0;
  Side side = Side::a;  // requester
  std::string title;
  std::string detail;
  std::string outcome;
  bool good = true;
  bool call = false;  // an RPC or a storage command, not a single operation
  Stamp start;
  std::int64_t latency_ns = -1;
  std::vector<PageOperation> operations;  // ordered by first frame
};

class PageExchanges {
 public:
  // Limit for one connection and one reason.
  static constexpr std::size_t of_a_kind = 40;
  static constexpr std::size_t max_operations = 64;  // in one exchange
  static constexpr std::size_t max_connections = 256;

  void add(const Operation& operation);
  void add(const Rpc& rpc);
  void add(const StorageCommand& command);
  void finish();

  // Returns at most `limit` exchanges, ordered by their first frames; slow and failed ones are
  // preferred.
  [[nodiscard]] std::vector<const PageExchange*> of(ConnectionId connection,
                                                    std::size_t limit) const;

 private:
  enum class Reason : std::uint8_t { first, slow, failed };
  struct Chosen {
    PageExchange exchange;
    Reason reason = Reason::first;
  };
  struct Choice {
    std::vector<Chosen> chosen;
    std::array<std::size_t, 3> count{};  // by reason, including pending ones
    std::int64_t floor_ns = -1;          // latency that another slow one must exceed
  };
  struct PerConnection {
    Choice operations;
    Choice calls;

    [[nodiscard]] Choice& of(bool call) { return call ? calls : operations; }
  };
  // A chosen exchange. Its operations may not all be known yet, because acknowledgements come late.
  struct Pending {
    PageExchange exchange;
    Reason reason = Reason::first;
    std::vector<std::uint32_t> keys;  // of the memory that a call grants
    std::uint64_t first_frame = 0;
    std::uint64_t call_frame = 0;
    std::uint64_t reply_frame = 0;
    std::int64_t done_ns = 0;
    std::uint64_t due = 0;  // number of operations at which it is completed
  };

  [[nodiscard]] bool choose(ConnectionId connection, bool call, bool good, std::int64_t latency_ns,
                            Reason& reason);
  void wait_for_operations(Pending pending);
  void settle(Pending& pending);
  void collect(Pending& pending) const;
  void collect_neighbours(Pending& pending) const;
  void keep(Pending& pending);

  std::map<ConnectionId, PerConnection> connections_;
  std::deque<PageOperation> recent_;
  std::deque<Pending> pending_;
  std::uint64_t seen_ = 0;
};

}  // namespace weft::capture
