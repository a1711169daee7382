// Chooses the exchanges that a page shows in detail: of each connection the first ones, the slowest
// and those that failed, each with the operations that belong to it. An exchange is an RPC, or,
// where there are none, an operation with its neighbours.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "weft/capture/operation.hpp"
#include "weft/capture/rpc.hpp"

namespace weft::capture {

// What a page keeps of an operation.
struct PageOperation {
  PageOperation() = default;
  explicit PageOperation(const Operation& operation);

  Stamp start;
  Stamp end;
  Stamp confirmation;  // frame 0: never
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
  Side side = Side::a;  // who asked
  std::string title;
  std::string detail;
  std::string outcome;
  bool good = true;
  bool rpc = false;
  Stamp start;
  std::int64_t latency_ns = -1;
  std::vector<PageOperation> operations;  // by their first frame
};

class PageExchanges {
 public:
  // Of one connection, for each reason.
  static constexpr std::size_t of_a_kind = 40;
  static constexpr std::size_t max_operations = 64;  // of one exchange
  static constexpr std::size_t max_connections = 256;

  void add(const Operation& operation);
  void add(const Rpc& rpc);
  void finish();

  // In the order of their beginning, at most `limit`: slow ones and those that failed first.
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
    std::array<std::size_t, 3> count{};  // by reason, with those that are pending
    std::int64_t floor_ns = -1;          // what a slow one must exceed
  };
  struct PerConnection {
    Choice operations;
    Choice rpcs;

    [[nodiscard]] Choice& of(bool rpc) { return rpc ? rpcs : operations; }
  };
  // Its operations may not all be known yet: acknowledgements come late.
  struct Pending {
    PageExchange exchange;
    Reason reason = Reason::first;
    std::vector<std::uint32_t> keys;  // of an RPC
    std::uint64_t first_frame = 0;
    std::uint64_t call_frame = 0;
    std::uint64_t reply_frame = 0;
    std::int64_t done_ns = 0;
    std::uint64_t due = 0;  // when so many operations were seen
  };

  [[nodiscard]] bool choose(ConnectionId connection, bool rpc, bool good, std::int64_t latency_ns,
                            Reason& reason);
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
