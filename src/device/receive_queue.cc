#include "device/receive_queue.h"

#include <algorithm>
#include <cerrno>

namespace weft::device {

ReceiveRing::ReceiveRing(std::uint32_t requests, std::uint32_t slices)
    : requests_(requests),
      slices_per_request_(slices),
      entries_(requests),
      slices_(std::size_t{requests} * slices) {}

int ReceiveRing::post(const ibv_recv_wr& request) {
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > slices_per_request_) {
    return EINVAL;
  }
  if (size() == requests_) return ENOMEM;
  const std::size_t at = tail_ % requests_;
  entries_[at] = {request.wr_id, static_cast<std::uint32_t>(request.num_sge)};
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& sge = request.sg_list[i];
    slices_[at * slices_per_request_ + static_cast<std::size_t>(i)] = {sge.addr, sge.length,
                                                                       sge.lkey};
  }
  ++tail_;
  return 0;
}

bool ReceiveRing::take(iwarp::ReceiveRequest& request) {
  if (head_ == tail_) return false;
  const std::size_t at = head_ % requests_;
  const auto first = slices_.begin() + static_cast<std::ptrdiff_t>(at * slices_per_request_);
  request.wr_id = entries_[at].wr_id;
  request.slices.assign(first, first + entries_[at].slice_count);
  ++head_;
  return true;
}

int ReceiveRing::resize(std::uint32_t requests) {
  if (requests < size()) return EINVAL;
  ReceiveRing other(requests, slices_per_request_);
  for (std::uint64_t i = head_; i != tail_; ++i) {
    const std::size_t from = i % requests_;
    const std::size_t to = other.tail_++ % requests;
    other.entries_[to] = entries_[from];
    std::copy_n(slices_.begin() + static_cast<std::ptrdiff_t>(from * slices_per_request_),
                slices_per_request_,
                other.slices_.begin() + static_cast<std::ptrdiff_t>(to * slices_per_request_));
  }
  *this = std::move(other);
  return 0;
}

}  // namespace weft::device
