// Stores the posted requests of one send queue: a ring of fixed size, allocated once.
//
// Requests are named by an index that counts up from 0 and never wraps; head() <= next() <= tail().
// Requests before head() have completed, those before next() are built, those before tail() are
// posted. Slices and inline data are stored beside the entries, so that posting does not allocate.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "iwarp/scatter.h"
#include "iwarp/types.h"

namespace weft::iwarp {

// The part of a WorkRequest that the queue keeps. It has no span: the slices are copied when the
// request is posted, see SendQueue::slices().
struct StoredRequest {
  std::uint64_t wr_id = 0;
  Operation operation = Operation::send;
  bool signaled = true;
  bool solicited = false;
  bool fence = false;
  bool inline_data = false;
  std::uint32_t rkey = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t immediate_be = 0;
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
  std::uint32_t receive_queue = 0;

  [[nodiscard]] static StoredRequest of(const WorkRequest& work) {
    return {.wr_id = work.wr_id,
            .operation = work.operation,
            .signaled = work.signaled,
            .solicited = work.solicited,
            .fence = work.fence,
            .inline_data = work.inline_data,
            .rkey = work.rkey,
            .remote_address = work.remote_address,
            .immediate_be = work.immediate_be,
            .compare_or_add = work.compare_or_add,
            .swap = work.swap,
            .receive_queue = work.receive_queue};
  }
};

class SendQueue {
 public:
  struct Entry {
    StoredRequest request;
    std::uint32_t length_bytes = 0;
    std::uint32_t slice_count = 0;   // 0 for inline data
    std::uint32_t built_bytes = 0;   // of the payload, in FPDUs so far
    std::uint32_t msn = 0;           // of its untagged message, or of the request it sends
    std::uint64_t end_position = 0;  // in the stream of FPDUs, behind its last one
    std::uint64_t last_message = 0;  // number of its last message among all that we sent, from 1
    std::uint64_t sent_cost = 0;     // PeerWindow::sent_cost() behind it
    bool built = false;              // all of its FPDUs are built
    bool answered = false;           // its response has arrived whole
    Status failure = Status::success;
  };

  explicit SendQueue(const QueueLimits& limits)
      : most_(std::max<std::uint32_t>(limits.send_requests, 1)),
        entries_(std::bit_ceil(most_)),
        slices_per_entry_(std::max<std::uint32_t>(limits.send_slices, 1)),
        slices_(entries_.size() * slices_per_entry_),
        inline_bytes_(limits.inline_bytes),
        inline_data_(entries_.size() * inline_bytes_) {}

  [[nodiscard]] std::uint64_t head() const { return head_; }
  [[nodiscard]] std::uint64_t next() const { return next_; }
  [[nodiscard]] std::uint64_t tail() const { return tail_; }
  [[nodiscard]] bool full() const { return tail_ - head_ == most_; }
  [[nodiscard]] bool idle() const { return head_ == tail_; }
  [[nodiscard]] bool all_built() const { return next_ == tail_; }
  // At least half of the places are taken by requests that are built and have not completed.
  [[nodiscard]] bool half_full_of_built() const { return (next_ - head_) * 2 >= most_; }

  // `index` must be one of the last size-of-the-ring indices that were pushed, or tail().
  [[nodiscard]] Entry& entry(std::uint64_t index) { return entries_[place_of(index)]; }
  [[nodiscard]] const Entry& entry(std::uint64_t index) const { return entries_[place_of(index)]; }
  [[nodiscard]] std::span<LocalSlice> slices(std::uint64_t index) {
    return std::span(slices_).subspan(place_of(index) * slices_per_entry_,
                                      entry(index).slice_count);
  }
  [[nodiscard]] std::byte* inline_data(std::uint64_t index) {
    return inline_data_.data() + place_of(index) * inline_bytes_;
  }

  // Copies the request, its slices and its inline data to the tail. The queue must not be full, and
  // the request must fit the limits: see Requester::acceptable().
  void push(const WorkRequest& work, std::uint32_t length_bytes);
  // The request at next() is built.
  void advance() { ++next_; }
  // The request at head() has completed.
  void pop() { ++head_; }
  // Nothing more is built: requests between next() and tail() only wait to be flushed.
  void stop() { next_ = tail_; }

 private:
  [[nodiscard]] std::size_t place_of(std::uint64_t index) const {
    return static_cast<std::size_t>(index) & (entries_.size() - 1);
  }

  std::size_t most_;            // requests at a time
  std::vector<Entry> entries_;  // a power of two, so that a place is found without a division
  std::size_t slices_per_entry_;
  std::vector<LocalSlice> slices_;
  std::size_t inline_bytes_;
  std::vector<std::byte> inline_data_;
  std::uint64_t head_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t tail_ = 0;
};

inline void SendQueue::push(const WorkRequest& work, std::uint32_t length_bytes) {
  Entry& added = entry(tail_);
  added = Entry{.request = StoredRequest::of(work), .length_bytes = length_bytes};
  if (work.inline_data) {
    // The slices name plain memory of the application, which is free again when post() returns.
    std::byte* at = inline_data(tail_);
    for (const auto& slice : work.slices) {
      if (slice.length_bytes == 0) continue;
      std::memcpy(at, reinterpret_cast<const void*>(slice.address), slice.length_bytes);
      at += slice.length_bytes;
    }
  } else {
    added.slice_count = static_cast<std::uint32_t>(work.slices.size());
    std::copy(work.slices.begin(), work.slices.end(), slices(tail_).begin());
  }
  ++tail_;
}

}  // namespace weft::iwarp
