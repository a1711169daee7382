// Requests that no carrier takes yet: a queue pair may be ready to send before its peer is, or
// after it has lost its peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ring_queue.h"
#include "iwarp/requester.h"
#include "iwarp/types.h"

namespace weft::device {

// A request with copies of its slices and of its inline data. The request refers to them where the
// vectors have them, which stays when this is moved.
struct StoredRequest {
  explicit StoredRequest(const iwarp::WorkRequest& given);
  StoredRequest(StoredRequest&&) = default;
  StoredRequest& operator=(StoredRequest&&) = default;

  iwarp::WorkRequest request;
  std::vector<iwarp::LocalSlice> slices;
  std::vector<std::byte> inline_data;
};

// Not thread safe: the queue pair's lock covers it.
class WaitingWork {
 public:
  // Accepts a request, as the send queue would; copies inline data.
  [[nodiscard]] iwarp::Requester::Posted post(const iwarp::QueueLimits& limits,
                                              const iwarp::WorkRequest& request);
  // Keeps a request that was under way when its connection was lost, for its completion only.
  void hold(std::uint64_t wr_id, iwarp::Operation operation);
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  // Moves the requests from the one with this index on behind those of the other list.
  void move_behind(std::size_t index, WaitingWork& other);
  void clear() { entries_.clear(); }

  // Hands each request to `take`, in the order of posting, and keeps none. What a request refers to
  // stays until `take` returns.
  template <typename Take>
  void release(Take take) {
    for (; !entries_.empty(); entries_.pop_front()) take(entries_.front().request);
  }

 private:
  RingQueue<StoredRequest> entries_;
};

}  // namespace weft::device
