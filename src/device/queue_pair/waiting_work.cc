#include "device/queue_pair/waiting_work.h"

namespace weft::device {

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
  if (entries_.size() >= limits.send_requests) return iwarp::Requester::Posted::queue_full;
  if (!iwarp::Requester::acceptable(limits, request)) return iwarp::Requester::Posted::invalid;
  entries_.emplace_back(request);
  return iwarp::Requester::Posted::ok;
}

void WaitingWork::hold(std::uint64_t wr_id, iwarp::Operation operation) {
  entries_.emplace_back(iwarp::WorkRequest{.wr_id = wr_id, .operation = operation});
}

}  // namespace weft::device
