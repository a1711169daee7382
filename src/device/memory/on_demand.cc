#include "device/memory/on_demand.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "base/size.h"
#include "device/context.h"
#include "device/memory/memory.h"

// Missing in older headers; in the kernel since 5.14.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace weft::device {
namespace {

// 0, or the errno of madvise(2).
int populate(std::byte* at, std::uint64_t length_bytes, bool for_writing) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  // madvise(2) takes whole pages.
  const auto from = reinterpret_cast<std::uintptr_t>(at) & ~(page - 1);
  const std::uintptr_t to = reinterpret_cast<std::uintptr_t>(at) + to_size(length_bytes);
  const int advice = for_writing ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (to < from) return EFAULT;
  return madvise(reinterpret_cast<void*>(from), to - from, advice) == 0 ? 0 : errno;
}

// Asked once: older kernels fail with EINVAL.
// Populating faults pages in without touching their contents, and reports what cannot be accessed
// instead of raising a signal.
bool kernel_populates() {
  static const bool does = [] {
    std::byte here{};
    return populate(&here, 1, false) == 0;
  }();
  return does;
}

// The errors are those of ibv_advise_mr(3). IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT only updates an
// adapter's page table, so it only checks the slice here.
int advise_one(MemoryTable& table, std::uint32_t domain, const ibv_sge& slice, bool for_writing,
               bool fault) {
  const Region* region = table.find(slice.lkey);
  if (!region || region->window || region->mr.lkey != slice.lkey) return ENOENT;
  if (region->domain != domain) return EINVAL;
  if (for_writing && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) return EPERM;
  const std::uint64_t offset = slice.addr - region->iova;
  if (slice.addr < region->iova || offset > region->length_bytes ||
      slice.length > region->length_bytes - offset) {
    return EFAULT;
  }
  // The pages of an ordinary region were checked when it was registered.
  if (!fault || slice.length == 0 || !region->on_demand()) return 0;
  return bring_in(region->base + offset, slice.length, for_writing) ? 0 : EFAULT;
}

}  // namespace

bool bring_in(std::byte* at, std::uint64_t length_bytes, bool for_writing) {
  if (length_bytes == 0) return true;
  if (kernel_populates()) return populate(at, length_bytes, for_writing) == 0;
  // weaker: does not check for write permission
  return check_mapped(at, to_size(length_bytes)) == 0;
}

// Linux fails with EINVAL where the protection forbids it, and for memory of drivers, which it does
// not pin either.
int check_accessible(void* address, std::size_t length_bytes, bool for_writing) {
  if (const int failed = check_mapped(address, length_bytes)) return failed;
  if (length_bytes == 0 || !kernel_populates()) return 0;
  const int failed = populate(static_cast<std::byte*>(address), 1, for_writing);
  return failed == EINVAL || failed == EFAULT ? EFAULT : 0;
}

int advise_memory(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* slices,
                  std::uint32_t count) {
  const bool known = advice == IBV_ADVISE_MR_ADVICE_PREFETCH ||
                     advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ||
                     advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  // Advice is a hint; a program that gets EOPNOTSUPP goes on without.
  if (!known) return EOPNOTSUPP;
  // IBV_ADVISE_MR_FLAG_FLUSH asks for completion on return; without it doing it at once is allowed
  // as well.
  if (count == 0 || (flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0) return EINVAL;
  for (const ibv_sge& slice : std::span(slices, count)) {
    const int failed =
        advise_one(Context::of(pd->context)->memory(), ProtectionDomain::of(pd)->number, slice,
                   advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                   advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT);
    if (failed != 0) return failed;
  }
  return 0;
}

}  // namespace weft::device
