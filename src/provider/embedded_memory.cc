// Protection domains and memory regions.
#include "device/context.h"
#include "provider/embedded_parts.h"
#include "provider/guard.h"
#include "provider/process.h"

namespace weft::provider {
namespace {

using device::Context;
using device::ProtectionDomain;

ibv_pd* alloc_pd(ibv_context* verbs) {
  if (!Process::owns(verbs)) return fail_null(ENODEV);
  if (const int failed = Context::of(verbs)->device().fault_of(faults::Point::allocate_domain)) {
    return fail_null(failed);
  }
  Context* context = Context::of(verbs);
  ProtectionDomain* domain = context->allocate_domain();
  ++context->objects;
  return &domain->pd;
}

// EBUSY while objects of the domain exist. A parent domain releases the domains that it holds.
int dealloc_pd(ibv_pd* pd) {
  if (!Process::owns(pd->context)) return 0;
  ProtectionDomain* domain = ProtectionDomain::of(pd);
  if (domain->users > 0) return EBUSY;
  for (std::atomic<int>* users : domain->holders) {
    if (users) --*users;
  }
  --Context::of(pd->context)->objects;
  Context::of(pd->context)->release_domain(*domain);
  return 0;
}

ibv_mr* reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                     unsigned access) {
  if (!Process::owns(pd->context)) return fail_null(ENODEV);
  if (const int failed =
          Context::of(pd->context)->device().fault_of(faults::Point::register_memory)) {
    return fail_null(failed);
  }
  Context* context = Context::of(pd->context);
  ibv_mr* mr = context->register_memory(*ProtectionDomain::of(pd), address, length, iova, access);
  if (mr) ++context->objects;
  return mr;
}

ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  return reg_mr_iova2(pd, address, length, iova, static_cast<unsigned>(access));
}

// ibv_reg_mr(3): peers address the memory by the program's own addresses.
ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return reg_mr_iova(pd, address, length, reinterpret_cast<std::uintptr_t>(address), access);
}

// Files of memory that cannot be shrunk. Memory of other devices, such as GPUs, is refused: the
// embedded device reaches only what the processor reaches.
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                      int fd, int access) {
  if (!Process::owns(pd->context)) return fail_null(ENODEV);
  if (const int failed =
          Context::of(pd->context)->device().fault_of(faults::Point::register_memory)) {
    return fail_null(failed);
  }
  Context* context = Context::of(pd->context);
  ibv_mr* mr = context->register_file(*ProtectionDomain::of(pd),
                                      {.file = fd, .offset_bytes = offset, .length_bytes = length},
                                      iova, static_cast<unsigned>(access));
  if (mr) ++context->objects;
  return mr;
}

int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  // The parent's region stays as it is.
  if (!Process::owns(mr->context)) {
    errno = ENODEV;
    return IBV_REREG_MR_ERR_INPUT;
  }
  const bool moved = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  // Checked before anything is changed: IBV_REREG_MR_ERR_INPUT means that the region is still valid
  // as it was (ibv_rereg_mr(3)).
  const bool wrong = (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
                     (moved && (!address || length == 0)) ||
                     ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && !pd);
  if (wrong) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  Context* context = Context::of(mr->context);
  int failed = context->device().fault_of(faults::Point::register_memory);
  if (failed == 0) {
    failed = context->reregister_memory(mr, {.changes = flags,
                                             .domain = pd ? ProtectionDomain::of(pd) : nullptr,
                                             .address = address,
                                             .length_bytes = length,
                                             .access = static_cast<unsigned>(access)});
  }
  if (failed == 0) return 0;
  errno = failed;
  // ibv_rereg_mr(3): after this value the program should not use the region any more.
  return IBV_REREG_MR_ERR_CMD;
}

// Memory that a child of fork(2) inherited stays registered in the parent, so this has no effect
// there.
int dereg_mr(ibv_mr* mr) {
  if (!mr) return EINVAL;
  if (!Process::owns(mr->context)) return 0;
  Context* context = Context::of(mr->context);
  const int failed = context->deregister_memory(mr);
  // A region that is still in use stays one of the objects that keep the context.
  if (failed == 0) --context->objects;
  return failed;
}

}  // namespace

void parts::memory(Table& table) {
  table.alloc_pd = verbs_call<alloc_pd>;
  table.dealloc_pd = verbs_call<dealloc_pd>;
  table.reg_mr = verbs_call<reg_mr>;
  table.reg_mr_iova = verbs_call<reg_mr_iova>;
  table.reg_mr_iova2 = verbs_call<reg_mr_iova2>;
  table.reg_dmabuf_mr = verbs_call<reg_dmabuf_mr>;
  table.rereg_mr = verbs_call<rereg_mr>;
  table.dereg_mr = verbs_call<dereg_mr>;
}

}  // namespace weft::provider
