// Memory regions: the calls of the table, and those that verbs.h makes through the context.
#include "check/hooks.h"
#include "check/memory_of_requests.h"
#include "check/posted_regions.h"

namespace weft::check {
namespace {

// `memory`: where the region's first byte is in this process, 0 if nowhere.
void note_region(Call& call, const ibv_mr* mr, std::uint64_t first, std::uint64_t memory,
                 unsigned access) {
  if (!mr) return;
  const KeptErrno kept;
  const bool whole = mr->addr == nullptr && (access & IBV_ACCESS_ON_DEMAND) != 0;
  Checker& state = checker();
  call.made({.kind = Kind::region, .handle = mr, .number = mr->lkey, .uses = {mr->pd}});
  const MemoryRegion region{.mr = mr,
                            .domain = mr->pd,
                            .key = mr->lkey,
                            .first = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : first,
                            .memory = memory,
                            .length = mr->length,
                            .access = access,
                            .any_address = whole,
                            .made = call.stack()};
  state.polled_writes.remove(mr);
  state.polled_writes.add(region);
  const std::lock_guard lock(state.mutex);
  state.regions.add(region);
}

std::uint64_t to_number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  Call call("ibv_reg_mr");
  if (!call.may_use(pd)) return errno = EINVAL, nullptr;
  ibv_mr* const mr = table_below().reg_mr(pd, address, length, access);
  note_region(call, mr, to_number(address), to_number(address), static_cast<unsigned>(access));
  return mr;
}

ibv_mr* reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                     unsigned access) {
  Call call("ibv_reg_mr_iova");
  if (!call.may_use(pd)) return errno = EINVAL, nullptr;
  ibv_mr* const mr = table_below().reg_mr_iova2(pd, address, length, iova, access);
  note_region(call, mr, iova, to_number(address), access);
  return mr;
}

ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  return reg_mr_iova2(pd, address, length, iova, static_cast<unsigned>(access));
}

// The device has a mapping of its own, which is not known here.
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                      int fd, int access) {
  Call call("ibv_reg_dmabuf_mr");
  if (!call.may_use(pd)) return errno = EINVAL, nullptr;
  ibv_mr* const mr = table_below().reg_dmabuf_mr(pd, offset, length, iova, fd, access);
  note_region(call, mr, iova, 0, static_cast<unsigned>(access));
  return mr;
}

int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  Call call("ibv_rereg_mr");
  if (!call.may_use(mr)) return IBV_REREG_MR_ERR_INPUT;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && !call.may_use(pd)) return IBV_REREG_MR_ERR_INPUT;
  MemoryRegion old;
  Checker& state = checker();
  {
    const std::lock_guard lock(state.mutex);
    if (const MemoryRegion* known = state.regions.find(mr->lkey)) old = *known;
  }
  const int failed = table_below().rereg_mr(mr, flags, pd, address, length, access);
  if (failed != 0 || !old.mr) return failed;
  const bool moved = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const unsigned rights =
      (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? static_cast<unsigned>(access) : old.access;
  note_region(call, mr, moved ? to_number(address) : old.first,
              moved ? to_number(address) : old.memory, rights);
  return failed;
}

// The program may use the memory again, whether or not requests name it.
void forget_watched(const ibv_mr& mr) {
  MemoryRange memory;
  {
    const std::lock_guard lock(checker().mutex);
    const MemoryRegion* const region = checker().regions.find(mr.lkey);
    if (region) memory = {region->memory, region->length};
  }
  checker().early_accesses.ended_in(memory);
}

int dereg_mr(ibv_mr* mr) {
  if (!mr) return table_below().dereg_mr(mr);
  Call call("ibv_dereg_mr");
  if (!call.may_use(mr)) return EINVAL;
  check_deregistration(call, *mr);
  check_mapped(call, *mr);
  const std::uint32_t key = mr->lkey;
  checker().polled_writes.remove(mr);
  forget_watched(*mr);
  const int failed = table_below().dereg_mr(mr);
  if (failed == EBUSY) call.refused(mr);
  if (failed != 0) return failed;
  call.destroyed(mr);
  forget_region(call, key);
  return failed;
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  Call call("ibv_alloc_null_mr");
  if (!call.may_use(pd)) return errno = EINVAL, nullptr;
  ibv_mr* const mr = checker().below.extended.alloc_null_mr(pd);
  if (!mr) return mr;
  call.made({.kind = Kind::region, .handle = mr, .number = mr->lkey, .uses = {pd}});
  note_unplaced_region(call, *mr, pd);
  return mr;
}

// Memory of the device has no address in the process; requests name it by offsets.
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* memory, std::uint64_t offset, std::size_t length,
                  unsigned access) {
  Call call("ibv_reg_dm_mr");
  if (!call.may_use(pd)) return errno = EINVAL, nullptr;
  ibv_mr* const mr = checker().below.extended.reg_dm_mr(pd, memory, offset, length, access);
  note_region(call, mr, 0, 0, access);
  return mr;
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  Call call("ibv_alloc_mw");
  if (!call.may_use(pd)) return errno = EINVAL, nullptr;
  ibv_mw* const window = checker().below.operations.alloc_mw(pd, type);
  if (window) {
    call.made({.kind = Kind::window, .handle = window, .number = window->rkey, .uses = {pd}});
  }
  return window;
}

int dealloc_mw(ibv_mw* window) {
  Call call("ibv_dealloc_mw");
  if (!call.may_use(window)) return EINVAL;
  const int failed = checker().below.operations.dealloc_mw(window);
  if (failed == 0) call.destroyed(window);
  return failed;
}

}  // namespace

void note_unplaced_region(Call& call, const ibv_mr& mr, const ibv_pd* domain) {
  const StackId stack = call.stack();
  const std::lock_guard lock(checker().mutex);
  checker().regions.add({.mr = &mr,
                         .domain = domain,
                         .key = mr.lkey,
                         .access = IBV_ACCESS_LOCAL_WRITE,
                         .any_address = true,
                         .made = stack});
}

void forget_region(Call& call, std::uint32_t key) {
  const StackId stack = call.stack();
  const std::lock_guard lock(checker().mutex);
  checker().regions.remove(key, stack);
}

void hook_memory(provider::Table& table) {
  table.reg_mr = reg_mr;
  table.reg_mr_iova = reg_mr_iova;
  table.reg_mr_iova2 = reg_mr_iova2;
  table.reg_dmabuf_mr = reg_dmabuf_mr;
  table.rereg_mr = rereg_mr;
  table.dereg_mr = dereg_mr;
}

void hook_memory_of(verbs_context& context) {
  context.context.ops.alloc_mw = alloc_mw;
  context.context.ops.dealloc_mw = dealloc_mw;
  context.alloc_null_mr = alloc_null_mr;
  context.reg_dm_mr = reg_dm_mr;
}

}  // namespace weft::check
