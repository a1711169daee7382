// Posted receives: a queue pair's own ring, or a shared one.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/queue_pair/queue_slots.h"
#include "iwarp/host.h"

namespace weft::device {

// A ring of receives. Not thread safe: its owner's lock covers it.
class ReceiveRing {
 public:
  ReceiveRing(std::uint32_t requests, std::uint32_t slices);

  // 0, ENOMEM where the ring is full, EINVAL for too many slices.
  int post(const ibv_recv_wr& request) {
    if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > slices_per_request_) {
      return EINVAL;
    }
    if (slots_.full()) return ENOMEM;
    slots_.take();
    // An entry is free when its place is: a place is given back after its receive was taken and
    // completed, so it never outlives the entry.
    const std::size_t at = place_of(tail_++);
    ids_[at] = request.wr_id;
    iwarp::LocalSlice* slice = slices_.data() + at * slices_per_request_;
    for (int i = 0; i < request.num_sge; ++i, ++slice) {
      const ibv_sge& sge = request.sg_list[i];
      *slice = {sge.addr, sge.length, sge.lkey};
    }
    slice_counts_[at] = static_cast<std::uint8_t>(request.num_sge);
    return 0;
  }
  // Its place is given back with its completion.
  bool take(iwarp::ReceiveRequest& request);
  void clear();

  [[nodiscard]] QueueSlots& slots() { return slots_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(tail_ - head_); }
  [[nodiscard]] std::uint32_t capacity() const { return slots_.capacity(); }
  // The posted receives by number, counted since the ring was made: first() to last(), exclusive.
  [[nodiscard]] std::uint64_t first() const { return head_; }
  [[nodiscard]] std::uint64_t last() const { return tail_; }
  // For LocalCarrier, which uses posted receives without taking them.
  [[nodiscard]] std::span<const iwarp::LocalSlice> slices_of(std::uint64_t number) const {
    const std::size_t at = place_of(number);
    return {slices_.data() + at * slices_per_request_, slice_counts_[at]};
  }
  [[nodiscard]] std::uint64_t id_of(std::uint64_t number) const { return ids_[place_of(number)]; }
  // The oldest receive, which exists, was used where it lies, and has completed: gives its place
  // back as well.
  void drop_oldest() {
    ++head_;
    slots_.give_back_locked(1);
  }
  // 0, or EINVAL where what is posted and not yet done with would not fit.
  int resize(std::uint32_t requests);

 private:
  [[nodiscard]] std::size_t place_of(std::uint64_t number) const {
    return static_cast<std::size_t>(number) & (ids_.size() - 1);
  }

  QueueSlots slots_;
  std::uint32_t slices_per_request_;
  // Three arrays, because one of structures would have gaps: an idle connection may have many
  // receives. Of a power of two of places, so that one is found without a division.
  std::vector<std::uint64_t> ids_;
  std::vector<std::uint8_t> slice_counts_;
  std::vector<iwarp::LocalSlice> slices_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

}  // namespace weft::device
