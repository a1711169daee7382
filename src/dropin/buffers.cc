// Functions of rdma-core 59 and 64: ibv_reg_mr_ex(3), ibv_alloc_buf(3).
//
// The header files of older releases declare neither the functions nor their types, and those of
// newer ones do. So the types have names of their own here, and the functions get their names for
// the linker by __asm__.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "dropin/export.h"
#include "dropin/provider_table.h"

namespace weft::dropin {
namespace {

// enum ibv_mr_init_attr_mask.
constexpr std::uint64_t has_iova = 1 << 0;
constexpr std::uint64_t has_address = 1 << 1;
constexpr std::uint64_t has_fd = 1 << 2;
constexpr std::uint64_t has_fd_offset = 1 << 3;
constexpr std::uint64_t has_buffer = 1 << 5;
// Not among them: 1 << 4, handles for an adapter's DMA (ibv_alloc_dmah), which this device lacks.
constexpr std::uint64_t known = has_iova | has_address | has_fd | has_fd_offset | has_buffer;

}  // namespace

// struct ibv_buf, which programs cannot look into.
struct Buffer {
  ibv_pd* pd;
  void* address;  // from posix_memalign
  std::size_t bytes;
};

// struct ibv_mr_init_attr. A member may be read only if its bit is in `comp_mask`: programs that
// were built with an older release have a shorter one.
struct RegionAttributes {
  std::size_t length;
  int access;
  std::uint64_t comp_mask;
  std::uint64_t iova;
  void* address;
  int fd;
  std::uint64_t fd_offset;
  void* dma_handle;
  Buffer* buffer;
};
static_assert(sizeof(void*) != 8 || sizeof(RegionAttributes) == 72);

namespace {

// A registration that fails returns null and leaves the reason in errno, as ibv_reg_mr(3) does.
ibv_mr* refuse(int error) {
  errno = error;
  return nullptr;
}

// The region is inside the buffer, which belongs to the protection domain.
bool is_within(const Buffer& buffer, const ibv_pd* pd, const RegionAttributes& wanted) {
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer.address);
  const auto at = reinterpret_cast<std::uintptr_t>(wanted.address);
  // The differences cannot wrap, while the sum of an address and a length from the program could.
  return buffer.pd == pd && at >= begin && at - begin <= buffer.bytes &&
         wanted.length <= buffer.bytes - (at - begin);
}

ibv_mr* register_region(ibv_pd* pd, const RegionAttributes& wanted) {
  const std::uint64_t mask = wanted.comp_mask;
  // An unknown bit may change the meaning of the others, so it is refused instead of ignored.
  if (mask & ~known) return refuse(EOPNOTSUPP);
  // A DMA-buf has no address in this process: it is named by an offset in its file and an IOVA. A
  // combination that is never valid fails with EINVAL, before the refusal of DMA-bufs themselves.
  if (mask & has_fd) {
    const bool complete = (mask & has_fd_offset) && (mask & has_iova);
    if ((mask & (has_address | has_buffer)) || !complete) return refuse(EINVAL);
    return refuse(EOPNOTSUPP);  // DMA-bufs; see ibv_reg_dmabuf_mr
  }
  if (!(mask & has_address) || (mask & has_fd_offset)) return refuse(EINVAL);
  if ((mask & has_buffer) && !is_within(*wanted.buffer, pd, wanted)) return refuse(EINVAL);
  // Without an IOVA of its own, a region has the addresses of the process, as with ibv_reg_mr().
  const auto iova =
      mask & has_iova ? wanted.iova : reinterpret_cast<std::uintptr_t>(wanted.address);
  return table().reg_mr_iova2(pd, wanted.address, wanted.length, iova,
                              static_cast<unsigned>(wanted.access));
}

}  // namespace

WEFT_EXPORT ibv_mr* reg_mr_ex(ibv_pd* pd, RegionAttributes* wanted) __asm__("ibv_reg_mr_ex");
WEFT_EXPORT void* alloc_buf(ibv_pd* pd, std::size_t bytes,
                            Buffer** buffer) __asm__("ibv_alloc_buf");
WEFT_EXPORT void free_buf(Buffer* buffer) __asm__("ibv_free_buf");
WEFT_EXPORT ibv_mr* reg_buf_mr(ibv_pd* pd, Buffer* buffer, void* address, std::size_t length,
                               int access) __asm__("ibv_reg_buf_mr");
WEFT_EXPORT int export_buf_dmabuf_fd(Buffer* buffer) __asm__("ibv_export_buf_dmabuf_fd");

ibv_mr* reg_mr_ex(ibv_pd* pd, RegionAttributes* wanted) {
  return register_region(pd, *wanted);
}

// Ordinary memory, at the start of a page.
void* alloc_buf(ibv_pd* pd, std::size_t bytes, Buffer** buffer) {
  std::unique_ptr<Buffer> made(new (std::nothrow) Buffer{pd, nullptr, bytes});
  // posix_memalign(3) returns its error and does not set errno.
  const int error =
      made ? posix_memalign(&made->address, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), bytes)
           : ENOMEM;
  if (error) {
    errno = error;
    return nullptr;
  }
  // From here on the program owns both the object and the memory, until free_buf().
  *buffer = made.release();
  return (*buffer)->address;
}

// The program deregisters the regions in the buffer first, as with any other memory that it frees.
void free_buf(Buffer* buffer) {
  std::free(buffer->address);  // NOLINT(cppcoreguidelines-no-malloc)
  delete buffer;
}

// The same as reg_mr_ex() with an address in a buffer, so that both make the same checks.
ibv_mr* reg_buf_mr(ibv_pd* pd, Buffer* buffer, void* address, std::size_t length, int access) {
  RegionAttributes wanted{};
  wanted.length = length;
  wanted.access = access;
  wanted.comp_mask = has_buffer | has_address;
  wanted.address = address;
  wanted.buffer = buffer;
  return register_region(pd, wanted);
}

// No buffer of this device is a DMA-buf: ENODATA, as the manual page has it.
int export_buf_dmabuf_fd(Buffer* /*buffer*/) {
  errno = ENODATA;
  return -1;
}

}  // namespace weft::dropin
