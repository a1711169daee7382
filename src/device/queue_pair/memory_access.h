// What a queue pair may do with registered memory: its own application's by lkey, and its peer by
// STag. Also the requests that change these rights and send nothing (binds, local invalidations).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/ring_queue.h"
#include "device/memory/memory.h"
#include "device/memory/memory_window.h"
#include "iwarp/host.h"

namespace weft::device {

// Not thread safe: the queue pair's lock covers it. While that lock is held, the addresses that it
// returns stay valid: deregistration takes the lock once before it returns (see memory/memory.h).
class MemoryAccess final : public iwarp::LocalMemory {
 public:
  // No memory belongs to it.
  static constexpr std::uint32_t no_domain = 0;

  // `attributes`: of the queue pair; its access flags limit what the peer may do.
  MemoryAccess(MemoryTable& table, std::uint32_t domain, std::uint32_t queue_pair_number,
               const ibv_qp_attr& attributes)
      : table_(table),
        domain_(domain),
        remote_domain_(domain),
        number_(queue_pair_number),
        attributes_(attributes) {}

  // Of an XRC queue pair, which has no domain of its own: that of the queue that the peer's request
  // names, and that of the queue that the current receive comes from. The two may differ while
  // messages wait for their receives.
  void set_remote_domain(std::uint32_t domain) { remote_domain_ = domain; }
  void set_receive_domain(std::uint32_t domain) { domain_ = domain; }

  // The queue pair's access flags do not count here: they limit the peer only.
  iwarp::Memory local_memory(const iwarp::LocalSlice& slice, bool for_writing) override {
    return check_local(table_.find(slice.lkey), domain_, slice, for_writing);
  }
  [[nodiscard]] iwarp::Memory remote_memory(const RemoteAccess& access) const;
  // A Send with Invalidate or a local invalidation. False: not allowed (RFC 5040 §5.3).
  bool invalidate(std::uint32_t stag);
  // Counts an access of the peer for its region.
  void count(const iwarp::PeerAccess& access);

  // A bind of a window, or without one the invalidation of binding.rkey.
  struct LocalRequest {
    MemoryWindow* window = nullptr;
    MemoryWindow::Binding binding;
  };

  // Local requests wait here from posting until carry_out_next(), in the order of posting.
  void add(const LocalRequest& request) { local_requests_.push_back(request); }
  void remove_newest() { local_requests_.pop_back(); }
  void remove_oldest() { local_requests_.pop_front(); }
  void clear() { local_requests_.clear(); }
  iwarp::Status carry_out_next();

 private:
  [[nodiscard]] Accessor accessor() const;

  MemoryTable& table_;
  std::uint32_t domain_;
  std::uint32_t remote_domain_;
  std::uint32_t number_;
  const ibv_qp_attr& attributes_;
  RingQueue<LocalRequest> local_requests_;
};

}  // namespace weft::device
