#include "device/local/staging.h"

#include "base/full_barrier.h"
#include "base/guarded_memory.h"

namespace weft::device::staging {
namespace {

// Calls `copy` with each range of the pieces that belongs to the part, and with its place in the
// area. False: a copy has failed, or the pieces are shorter.
template <typename Copy>
bool for_each_range(std::span<const iovec> pieces, const inbox::Part& part, Copy copy) {
  std::uint64_t skipped = part.offset;
  std::size_t at = part.at;
  std::size_t left = part.bytes;
  for (const iovec& piece : pieces) {
    if (left == 0) break;
    if (skipped >= piece.iov_len) {
      skipped -= piece.iov_len;
      continue;
    }
    const std::size_t bytes = std::min<std::size_t>(left, piece.iov_len - skipped);
    if (!copy(static_cast<std::byte*>(piece.iov_base) + skipped, at, bytes)) return false;
    skipped = 0;
    at += bytes;
    left -= bytes;
  }
  return left == 0;
}

// As RemoteCopy: a copy may store its bytes in any order, so those in the last cache line are a
// copy of their own.
bool store(std::byte* to, const std::byte* from, std::size_t bytes) {
  const std::size_t head = bytes_before_last_line(to, bytes);
  if (head > 0 && !guarded_store(to, from, head)) return false;
  store_barrier();
  return guarded_store(to + head, from + head, bytes - head);
}

}  // namespace

bool gather(std::span<const iovec> pieces, const inbox::Part& part, std::span<std::byte> area) {
  return for_each_range(pieces, part, [&](std::byte* from, std::size_t at, std::size_t bytes) {
    return guarded_load(area.subspan(at, bytes).data(), from, bytes);
  });
}

bool scatter(std::span<const iovec> pieces, const inbox::Part& part,
             std::span<const std::byte> area) {
  return for_each_range(pieces, part, [&](std::byte* to, std::size_t at, std::size_t bytes) {
    return store(to, area.subspan(at, bytes).data(), bytes);
  });
}

}  // namespace weft::device::staging
