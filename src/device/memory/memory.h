// Registered memory: which STag names which bytes, and who may do what with them (RFC 5040 §8, RFC
// 5042).
//
// Looking up is lock-free; it happens under some queue pair's lock. Taking a region away happens in
// two steps: it leaves the table, then every queue pair's lock is taken once (see Context), after
// which nobody can still be using it. So a data path access needs no reference count, and
// deregistration waits for placements in flight.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "iwarp/host.h"
#include "weft/counters.hpp"

namespace weft::device {

class MemoryWindow;
class NullMemory;

// What peers do with a region, from under the locks of several queue pairs.
class RegionCounters {
 public:
  void add(const iwarp::PeerAccess& access) {
    Counter& counter = counters_[static_cast<std::size_t>(access.right)];
    counter.bytes.fetch_add(access.bytes, std::memory_order_relaxed);
    if (access.last) counter.operations.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] MemoryRegionCounters values() const {
    const auto of = [this](iwarp::RemoteRight right) {
      const Counter& counter = counters_[static_cast<std::size_t>(right)];
      return Traffic{counter.operations.load(), counter.bytes.load()};
    };
    return {.peer_writes = of(iwarp::RemoteRight::write),
            .peer_reads = of(iwarp::RemoteRight::read),
            .peer_atomics = of(iwarp::RemoteRight::atomic)};
  }

 private:
  struct Counter {
    std::atomic<std::uint64_t> operations{0};
    std::atomic<std::uint64_t> bytes{0};
  };
  std::array<Counter, 3> counters_;  // by right
};

struct Region {
  ibv_mr mr{};                         // first: an ibv_mr* is a Region*
  std::atomic<std::uint32_t> stag{0};  // as the table knows it; a window's changes when it is bound
  std::uint32_t domain = 0;
  std::uint32_t access = 0;  // IBV_ACCESS_*
  std::uint64_t iova = 0;    // what the first byte is called by lkey and rkey
  std::byte* base = nullptr;
  std::uint64_t length_bytes = 0;
  // A Send with Invalidate withdrew it (RFC 5040 §5.3); lkey access stays.
  std::atomic<bool> remote_valid{true};
  MemoryWindow* window = nullptr;  // whose this is; its lock covers what changes when it is bound
  std::atomic<int> windows{0};     // bound to this region
  NullMemory* null = nullptr;      // of a null region
  std::atomic<int>* holder = nullptr;  // whose memory it is counts it as a user
  std::atomic<bool> leaving{false};    // no window may be bound to it any more
  RegionCounters counters;

  [[nodiscard]] bool on_demand() const { return (access & IBV_ACCESS_ON_DEMAND) != 0; }
  [[nodiscard]] static Region* of(ibv_mr* mr) { return reinterpret_cast<Region*>(mr); }
};

class MemoryTable {
 public:
  MemoryTable();
  ~MemoryTable();
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;

  // Gives the region an unguessable STag and makes it known; false where the table is full. The
  // table does not own it.
  bool add(Region& region);
  // As hard to guess as those, and never one of them: for control words.
  [[nodiscard]] std::uint32_t random_control_stag();
  // Back under the name that it had when it was removed.
  void restore(Region& region);
  // After this, and a grace period, nobody holds the region. Answers how often the table has grown.
  std::uint64_t remove(Region& region);
  // To be called when a grace period has passed since then, with that answer: frees what growth up
  // to there left behind. What other threads have outgrown meanwhile may still have readers.
  void reclaim(std::uint64_t growths);

  // The region with exactly this STag, or null. The pointer is good until the caller's queue pair
  // lock is released.
  [[nodiscard]] const Region* find(std::uint32_t stag) const;
  [[nodiscard]] Region* find(std::uint32_t stag);
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Table;
  void insert(Table& table, Region* region);
  void grow();

  std::atomic<Table*> table_;
  std::mutex mutex_;
  std::size_t size_ = 0;
  std::size_t used_ = 0;  // entries that are not free: regions and gravestones
  std::vector<std::unique_ptr<Table>> tables_;  // the last one is in use
  std::uint64_t reclaimed_ = 0;                 // that were before them
  std::mt19937_64 random_;
};

// Who asks for memory: a queue pair.
struct Accessor {
  std::uint32_t domain = 0;
  std::uint32_t queue_pair = 0;  // its number
  std::uint32_t access = 0;      // IBV_ACCESS_* that it grants its peer at all
};

// One access of a remote peer.
struct RemoteAccess {
  std::uint32_t stag = 0;
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = 0;
  iwarp::RemoteRight right = iwarp::RemoteRight::write;
};

// The rules of one access; `region` as the table found it, or null.
[[nodiscard]] iwarp::Memory check_remote(const Region* region, const Accessor& accessor,
                                         const RemoteAccess& access);
[[nodiscard]] iwarp::Memory check_local(const Region* region, std::uint32_t domain,
                                        const iwarp::LocalSlice& slice, bool for_writing);

// Whether [address, address + length) is mapped at all: 0 or EFAULT.
[[nodiscard]] int check_mapped(const void* address, std::size_t length_bytes);

}  // namespace weft::device
