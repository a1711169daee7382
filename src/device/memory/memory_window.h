// Memory windows: ibv_alloc_mw(3), ibv_bind_mw(3), and the requests IBV_WR_BIND_MW and
// IBV_WR_LOCAL_INV of ibv_post_send(3).
//
// A window is a region of the table whose place changes: binding it gives a peer rights to a part
// of another region, under a new key and at the cost of one work request.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>

#include "device/memory/memory.h"

namespace weft::device {

class MemoryWindow {
 public:
  // What a bind asks for.
  struct Binding {
    std::uint32_t rkey = 0;  // the new one
    std::uint32_t lkey = 0;  // of the region; 0 with no length: of none
    std::uint64_t address = 0;
    std::uint64_t length_bytes = 0;
    unsigned access = 0;  // IBV_ACCESS_REMOTE_*, IBV_ACCESS_ZERO_BASED
  };

  MemoryWindow(ibv_pd* pd, std::uint32_t domain, ibv_mw_type type);
  MemoryWindow(const MemoryWindow&) = delete;
  MemoryWindow& operator=(const MemoryWindow&) = delete;

  [[nodiscard]] ibv_mw* verbs() { return &mw_; }
  [[nodiscard]] static MemoryWindow* of(ibv_mw* mw) { return reinterpret_cast<MemoryWindow*>(mw); }
  [[nodiscard]] Region& region() { return region_; }
  // After the table has named it.
  void take_name() { mw_.rkey = region_.mr.rkey; }

  // In its turn, under the lock of queue pair `queue_pair`.
  [[nodiscard]] iwarp::Status bind(MemoryTable& table, std::uint32_t queue_pair,
                                   const Binding& binding);
  // Withdraws the key, asked for by that queue pair's program or peer. Of type 2 only.
  [[nodiscard]] bool invalidate(std::uint32_t rkey, const Accessor& accessor);
  void unbind();

  // For whoever looks at the region.
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  // Under the lock. A window of type 2 belongs to the queue pair that bound it.
  [[nodiscard]] bool serves(std::uint32_t queue_pair) const {
    return mw_.type == IBV_MW_TYPE_1 || queue_pair_ == queue_pair;
  }

 private:
  [[nodiscard]] bool acceptable(const Region* source, const Binding& binding) const;
  void release();

  ibv_mw mw_{};  // first: see of()
  std::mutex mutex_;
  Region region_;
  Region* source_ = nullptr;      // what it is bound to
  std::uint32_t queue_pair_ = 0;  // of type 2: whose bind that was
};

}  // namespace weft::device
