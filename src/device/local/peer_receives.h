// The receives that the peer of a connection within a host has published, as its requester uses
// them: in their order, one after the other.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "device/local/grant_table.h"
#include "device/local/inbox.h"
#include "device/local/local_connection.h"

namespace weft::device {

// The peer writes its count and its receives while messages go back and forth, so each look takes a
// cache line from the peer's processor. Both are copied for several messages at a time: a receive
// that is published stays as it is until it is used. Covered by the queue pair's lock.
class PeerReceives {
 public:
  explicit PeerReceives(const LocalConnection& connection) : connection_(connection) {}

  // Whether there is a receive that claim() has not used. Sequentially consistent with
  // inbox::Inbox::wants_receive where there is none.
  [[nodiscard]] bool available() {
    if (published_ != claimed_) [[likely]]
      return true;
    published_ = connection_.peer().receives.published.load(std::memory_order_seq_cst);
    return published_ != claimed_;
  }
  // The oldest one. available() was true.
  [[nodiscard]] const inbox::Receive& oldest() {
    if (copied_ <= claimed_) copy();
    return ahead_[claimed_ % ahead_.size()];
  }
  [[nodiscard]] std::uint64_t number_of_oldest() const { return claimed_; }
  // The memory of one of its pieces, as the peer's table of regions has it now.
  [[nodiscard]] GrantView::Found look_up(const iwarp::LocalSlice& piece) {
    const GrantView& grants = connection_.grants();
    const GrantView::Access access = access_of(piece);
    auto found = grants.look_up(access, region_);
    if (found.known && found.fault == iwarp::Fault::none && !grants.still_there(found)) {
      region_ = {};
      found = grants.look_up(access, region_);
    }
    return found;
  }
  // Whether look_up() finds memory that may be written to.
  [[nodiscard]] bool writable(const iwarp::LocalSlice& piece) {
    if (connection_.grants().allows(access_of(piece), region_)) [[likely]]
      return true;
    const auto found = look_up(piece);
    return found.known && found.fault == iwarp::Fault::none;
  }
  void claim() { ++claimed_; }

 private:
  [[nodiscard]] GrantView::Access access_of(const iwarp::LocalSlice& piece) const {
    return {.stag = piece.lkey,
            .domain = connection_.peer().domain,
            .offset = piece.address,
            .length_bytes = piece.length_bytes,
            .needed = IBV_ACCESS_LOCAL_WRITE};
  }
  void copy() {
    const std::uint64_t end = std::min(published_, claimed_ + ahead_.size());
    copied_ = claimed_;
    // It copies one receive at least, also if the count of a hostile peer goes backwards.
    do {
      ahead_[copied_ % ahead_.size()] = connection_.peer_receive(copied_);
    } while (++copied_ < end);
  }

  const LocalConnection& connection_;
  std::uint64_t claimed_ = 0;    // receives that Sends have used
  std::uint64_t copied_ = 0;     // those before it were copied
  std::uint64_t published_ = 0;  // at the last look
  std::array<inbox::Receive, 8> ahead_{};
  GrantView::Known region_;  // of the last one
};

}  // namespace weft::device
