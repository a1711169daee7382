// Joins the Data Transfers of one side of an SMB Direct connection to chains of SMB 2 messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/storage/smb_wire.h"
#include "weft/capture/budget.hpp"

namespace weft::capture {

class SmbStream {
 public:
  // `budget`, which must outlive this object, bounds the bytes of all streams.
  explicit SmbStream(Budget& budget) : budget_(&budget) {}
  SmbStream(const SmbStream&) = delete;
  SmbStream& operator=(const SmbStream&) = delete;
  ~SmbStream() { budget_->give_back(bytes_.size()); }

  // Calls take(const Extent&, Bytes chain) if the transfer ends a chain. Of a chain that is longer
  // than `limit`, only the beginning is passed; one with a missing piece ends before it.
  template <typename Take>
  void add(const SmbTransfer& transfer, const Extent& extent, std::size_t limit, Take take) {
    const bool whole = transfer.data.size() == transfer.size;
    // The pieces of a chain count down, so a missing one is noticed.
    if (open_ && expected_ != transfer.size + transfer.remaining) end(take);
    if (!open_) {
      if (transfer.remaining == 0) return take(extent, transfer.data);
      open_ = true;
      cut_ = false;
      extent_.first = extent.first;
    }
    if (!cut_) {
      const std::size_t room = limit - std::min(limit, bytes_.size());
      const Bytes kept = transfer.data.first(std::min(room, transfer.data.size()));
      if (budget_->take(kept.size())) {
        bytes_.insert(bytes_.end(), kept.begin(), kept.end());
      } else {
        cut_ = true;
      }
    }
    if (!whole) cut_ = true;
    extent_.last = extent.last;
    expected_ = transfer.remaining;
    if (transfer.remaining == 0) end(take);
  }

  // Returns whether the next transfer continues a chain.
  [[nodiscard]] bool is_open() const { return open_; }

 private:
  template <typename Take>
  void end(Take take) {
    open_ = false;
    take(extent_, Bytes(bytes_));
    budget_->give_back(bytes_.size());
    bytes_.clear();
  }

  Budget* budget_;
  bool open_ = false;
  bool cut_ = false;            // some bytes are missing: nothing is appended any more
  std::uint64_t expected_ = 0;  // bytes that are still to come
  Extent extent_;
  std::vector<std::byte> bytes_;
};

}  // namespace weft::capture
