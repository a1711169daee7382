#include "device/queue_pair/waiting_work.h"

#include <utility>

namespace weft::device {

// The program may reuse its list of slices, and inline data itself, as soon as posting returns
// (ibv_post_send(3)). Inline data becomes one slice, whose address is that of the copy.
StoredRequest::StoredRequest(const iwarp::WorkRequest& given)
    : request(given), slices(given.slices.begin(), given.slices.end()) {
  if (request.inline_data) {
    for (const auto& slice : slices) {
      const auto* at = reinterpret_cast<const std::byte*>(slice.address);
      inline_data.insert(inline_data.end(), at, at + slice.length_bytes);
    }
    slices.clear();
    if (!inline_data.empty()) {
      slices.push_back({.address = reinterpret_cast<std::uint64_t>(inline_data.data()),
                        .length_bytes = static_cast<std::uint32_t>(inline_data.size())});
    }
  }
  request.slices = slices;
}

iwarp::Requester::Posted WaitingWork::post(const iwarp::QueueLimits& limits,
                                           const iwarp::WorkRequest& request) {
  // The queue pair checks its places as well; this keeps the list as long as the send queue that
  // will take it over.
  if (entries_.size() >= limits.send_requests) return iwarp::Requester::Posted::queue_full;
  if (!iwarp::Requester::acceptable(limits, request)) return iwarp::Requester::Posted::invalid;
  entries_.emplace_back(request);
  return iwarp::Requester::Posted::ok;
}

void WaitingWork::move_behind(std::size_t index, WaitingWork& other) {
  for (std::size_t i = index; i < entries_.size(); ++i) {
    other.entries_.emplace_back(std::move(entries_[i]));
  }
  while (entries_.size() > index) entries_.pop_back();
}

// Only the id and the operation are kept: the request is not sent again, it only completes later.
void WaitingWork::hold(std::uint64_t wr_id, iwarp::Operation operation) {
  entries_.emplace_back(iwarp::WorkRequest{.wr_id = wr_id, .operation = operation});
}

}  // namespace weft::device
