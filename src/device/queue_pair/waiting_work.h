// Requests without a stream to carry them: a queue pair may be ready to send while its peer is
// late, or after its peer has gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "iwarp/requester.h"
#include "iwarp/types.h"

namespace weft::device {

// A request with copies of its slices and of its inline data. Never moved, because the request
// refers to them.
struct StoredRequest {
  explicit StoredRequest(const iwarp::WorkRequest& given);
  StoredRequest(const StoredRequest&) = delete;
  StoredRequest& operator=(const StoredRequest&) = delete;

  iwarp::WorkRequest request;
  std::vector<iwarp::LocalSlice> slices;
  std::vector<std::byte> inline_data;
};

// Not thread safe: the queue pair's lock covers it.
class WaitingWork {
 public:
  // What the send queue would answer; inline data is copied here as there.
  [[nodiscard]] iwarp::Requester::Posted post(const iwarp::QueueLimits& limits,
                                              const iwarp::WorkRequest& request);
  // One that was under way when its stream was lost: only what its completion says.
  void hold(std::uint64_t wr_id, iwarp::Operation operation);
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }

  // Hands each request to `take`, in the order of posting, and keeps none. What a request refers to
  // stays until `take` returns.
  template <typename Take>
  void release(Take take) {
    for (; !entries_.empty(); entries_.pop_front()) take(entries_.front().request);
  }

 private:
  std::deque<StoredRequest> entries_;
};

}  // namespace weft::device
