// Storage of posted receives. Each has places for a fixed number of slices, so that posting and
// taking allocate nothing.
#include "device/queue_pair/receive_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "device/limits.h"

namespace weft::device {
namespace {

static_assert(limits::max_slices <= UINT8_MAX);  // of slice_counts_

}  // namespace

ReceiveRing::ReceiveRing(std::uint32_t requests, std::uint32_t slices)
    : slots_(requests),
      slices_per_request_(slices),
      ids_(std::bit_ceil(requests)),
      slice_counts_(ids_.size()),
      slices_(ids_.size() * slices) {}

bool ReceiveRing::take(iwarp::ReceiveRequest& request) {
  if (head_ == tail_) return false;
  const std::size_t at = place_of(head_);
  const auto first = slices_.begin() + static_cast<std::ptrdiff_t>(at * slices_per_request_);
  request.wr_id = ids_[at];
  // Copied, because the entry may be overwritten as soon as the place of the request is given back.
  request.slices.assign(first, first + slice_counts_[at]);
  ++head_;
  return true;
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
    other.ids_[to] = ids_[from];
    other.slice_counts_[to] = slice_counts_[from];
    std::copy_n(slices_.begin() + static_cast<std::ptrdiff_t>(from * slices_per_request_),
                slices_per_request_,
                other.slices_.begin() + static_cast<std::ptrdiff_t>(to * slices_per_request_));
  }
  slots_.resize(requests);
  ids_ = std::move(other.ids_);
  slice_counts_ = std::move(other.slice_counts_);
  slices_ = std::move(other.slices_);
  head_ = other.head_;
  tail_ = other.tail_;
  return 0;
}

}  // namespace weft::device
