// Thread domains and parent domains: ibv_alloc_td(3), ibv_alloc_parent_domain(3).
//
// With them a program promises that some objects are used by one thread at a time, or provides
// memory for an adapter's queues. This device's locks are uncontended then anyway, and its queues
// are in its own memory, so it accepts both and does nothing with them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

#include "base/kept_memory.h"
#include "device/context.h"

namespace weft::device {

struct ThreadDomain : KeptMemory {
  ibv_td td{};                // first: see of()
  std::atomic<int> users{0};  // parent domains that use it

  [[nodiscard]] static ThreadDomain* of(ibv_td* td) { return reinterpret_cast<ThreadDomain*>(td); }
};

ibv_td* allocate_thread_domain(ibv_context* context, ibv_td_init_attr* attributes);
int free_thread_domain(ibv_td* td);

// Creates a protection domain with the number of the given one, so that objects of both work
// together.
ibv_pd* allocate_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes);

}  // namespace weft::device
