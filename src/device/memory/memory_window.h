// Memory windows: ibv_alloc_mw(3), ibv_bind_mw(3), and the requests IBV_WR_BIND_MW and
// IBV_WR_LOCAL_INV of ibv_post_send(3).
//
// A window is an entry of the memory table that can be bound again and again: each bind grants a
// peer access to a part of another region under a new key, at the cost of one work request.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>

#include "base/kept_memory.h"
#include "device/memory/memory.h"

namespace weft::device {

class MemoryWindow : public KeptMemory {
 public:
  // The parameters of a bind.
  struct Binding {
    std::uint32_t rkey = 0;  // the new rkey
    std::uint32_t lkey = 0;  // of the region; 0 with length 0: unbind
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
  // To be called after MemoryTable::add() has assigned the STag.
  void take_name() { mw_.rkey = region_.mr.rkey; }

  // Executes a bind request, in order with the queue pair's other requests and under its lock.
  // Returns Status::window_bind if the bind is not allowed.
  [[nodiscard]] iwarp::Status bind(MemoryTable& table, std::uint32_t queue_pair,
                                   const Binding& binding);
  // Invalidates the key for a request of the queue pair's program or peer. For type 2 only.
  [[nodiscard]] bool invalidate(std::uint32_t rkey, const Accessor& accessor);
  void unbind();

  // Must be held while the region's values are read.
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  // True if this queue pair may use the window; the lock must be held. Type 2 belongs to the queue
  // pair that bound it.
  [[nodiscard]] bool serves(std::uint32_t queue_pair) const {
    return mw_.type == IBV_MW_TYPE_1 || queue_pair_ == queue_pair;
  }

 private:
  [[nodiscard]] bool acceptable(const Region* source, const Binding& binding) const;
  void release();

  ibv_mw mw_{};  // first: see of()
  std::mutex mutex_;
  Region region_;
  Region* source_ = nullptr;      // the region that it is bound to
  std::uint32_t queue_pair_ = 0;  // type 2: the queue pair that has bound it
};

}  // namespace weft::device
