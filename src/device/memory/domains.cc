// Thread domains and parent domains: hints for adapters' locking, which programs may pass on. The
// device accepts them and keeps its own locks.
#include "device/memory/domains.h"

#include <cerrno>
#include <memory>

namespace weft::device {

ibv_td* allocate_thread_domain(ibv_context* context, ibv_td_init_attr* attributes) {
  if (attributes->comp_mask != 0) {
    errno = EINVAL;
    return nullptr;
  }
  auto made = std::make_unique<ThreadDomain>();
  made->td.context = context;
  ++Context::of(context)->objects;
  return &made.release()->td;
}

int free_thread_domain(ibv_td* td) {
  ThreadDomain* domain = ThreadDomain::of(td);
  // ibv_dealloc_td(3): a parent domain still uses it.
  if (domain->users > 0) return EBUSY;
  --Context::of(td->context)->objects;
  delete domain;
  return 0;
}

// Counts itself as a user of the domain and the thread domain, which therefore cannot be freed
// before it.
ibv_pd* allocate_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  constexpr std::uint32_t allocators = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  // IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC of rdma-core 65: a confidential guest
  // allows memory that its host can read, which this device does not need.
  constexpr std::uint32_t unprotected = 1 << 2;
  constexpr std::uint32_t known = allocators | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | unprotected;
  const bool wrong = !attributes->pd || attributes->pd->context != context ||
                     (attributes->td && attributes->td->context != context) ||
                     (attributes->comp_mask & ~known) != 0;
  if (wrong) {
    errno = EINVAL;
    return nullptr;
  }
  auto made = std::make_unique<ProtectionDomain>();
  ProtectionDomain* parent = ProtectionDomain::of(attributes->pd);
  made->pd.context = context;
  // The same number: memory of the parent is memory of this domain, and the other way round.
  made->number = parent->number;
  made->pd.handle = made->number;
  made->holders = {&parent->users,
                   attributes->td ? &ThreadDomain::of(attributes->td)->users : nullptr};
  for (std::atomic<int>* users : made->holders) {
    if (users) ++*users;
  }
  ++Context::of(context)->objects;
  return &made.release()->pd;
}

}  // namespace weft::device
