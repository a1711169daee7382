// What RpcTracker keeps of one connection; for its own files.
#pragma once

#include <array>
#include <cstddef>

#include "capture/rpc_tracker.h"

namespace weft::capture {

[[nodiscard]] constexpr std::size_t index_of(Side side) {
  return side == Side::a ? 0 : 1;
}

// One connection's.
struct RpcTracker::State {
  State(ConnectionId connection, Budget& budget)
      : id(connection), sends{SendAssembly(budget), SendAssembly(budget)} {}

  ConnectionId id;
  bool recognised = false;
  std::array<SendAssembly, 2> sends;
  std::array<Caller, 2> callers;
  std::array<bool, 2> ended{};
  RpcCounts counts;

  Caller& caller(Side side) { return callers[index_of(side)]; }
};

template <typename Count>
void RpcTracker::count(State& state, Count which) {
  ++(counts_.*which);
  ++(state.counts.*which);
}

}  // namespace weft::capture
