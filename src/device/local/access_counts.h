// Counts what this end does to the peer's memory, where the peer's statistics find it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/local/grant_table.h"
#include "device/local/inbox.h"

namespace weft::device {

// Of one connection. Accesses of one kind to one region are added up and published together,
// because the counts of a region are shared by the connections of several processes: an atomic
// addition for each access would cost more than a small Write. Not thread safe.
class AccessCounts {
 public:
  AccessCounts(inbox::Inbox& peer, const GrantView& grants) : peer_(peer), grants_(grants) {}

  void add(const GrantView::Found& found, iwarp::RemoteRight right, std::uint64_t bytes);
  // Publishes what was added since the last call.
  void end();

 private:
  inbox::Inbox& peer_;
  const GrantView& grants_;
  Traffic accesses_;
  iwarp::RemoteRight right_{};
  std::size_t place_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace weft::device
