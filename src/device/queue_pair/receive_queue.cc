// Storage of posted receives. Each has a fixed number of slices beside its entry, so that posting
// and taking allocate nothing.
#include "device/queue_pair/receive_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace weft::device {

ReceiveRing::ReceiveRing(std::uint32_t requests, std::uint32_t slices)
    : slots_(requests),
      slices_per_request_(slices),
      entries_(std::bit_ceil(requests)),
      slices_(entries_.size() * slices) {}

int ReceiveRing::post(const ibv_recv_wr& request) {
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > slices_per_request_) {
    return EINVAL;
  }
  if (slots_.full()) return ENOMEM;
  slots_.take();
  // An entry is free when its place is: a place is given back after its receive was taken and
  // completed, so it never outlives the entry.
  const std::size_t at = place_of(tail_);
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
  const std::size_t at = place_of(head_);
  const auto first = slices_.begin() + static_cast<std::ptrdiff_t>(at * slices_per_request_);
  request.wr_id = entries_[at].wr_id;
  // Copied, because the entry may be overwritten as soon as the place of the request is given back.
  request.slices.assign(first, first + entries_[at].slice_count);
  ++head_;
  return true;
}

// For LocalCarrier, which publishes posted receives to a peer on this host without taking them.
std::span<const iwarp::LocalSlice> ReceiveRing::slices_of(std::uint64_t number) const {
  const std::size_t at = place_of(number);
  return std::span(slices_).subspan(at * slices_per_request_, entries_[at].slice_count);
}

void ReceiveRing::clear() {
  // The numbers go on instead of starting at 0, so that a number names one receive for good.
  head_ = tail_;
  slots_.clear();
}

int ReceiveRing::resize(std::uint32_t requests) {
  // Receives that were taken and not polled count as well: they still have their places.
  if (requests < slots_.taken()) return EINVAL;
  ReceiveRing other(requests, slices_per_request_);
  for (std::uint64_t i = head_; i != tail_; ++i) {
    const std::size_t from = place_of(i);
    const std::size_t to = other.place_of(other.tail_++);
    other.entries_[to] = entries_[from];
    std::copy_n(slices_.begin() + static_cast<std::ptrdiff_t>(from * slices_per_request_),
                slices_per_request_,
                other.slices_.begin() + static_cast<std::ptrdiff_t>(to * slices_per_request_));
  }
  slots_.resize(requests);
  entries_ = std::move(other.entries_);
  slices_ = std::move(other.slices_);
  head_ = other.head_;
  tail_ = other.tail_;
  return 0;
}

}  // namespace weft::device
