// The slices that requests of the send queue keep until they have completed.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "weft/verbs/kept_slice.hpp"

namespace weft::connection::detail {

// Not thread-safe; guarded by Core::posting_. Empty, and without cost, unless a program posts
// KeptSlices.
class KeptRequests {
 public:
  // `id`: the wr_id of the request, which is larger than those before it.
  void add(std::uint64_t id, const verbs::KeptSlice& slice) { kept_.emplace_back(id, slice); }
  // A completion covers the requests before it. What they have kept is moved to `released`.
  void release(std::uint64_t completed_id, std::vector<verbs::KeptSlice>& released) {
    while (!kept_.empty() && kept_.front().first <= completed_id) {
      released.push_back(std::move(kept_.front().second));
      kept_.pop_front();
    }
  }

 private:
  std::deque<std::pair<std::uint64_t, verbs::KeptSlice>> kept_;
};

}  // namespace weft::connection::detail
