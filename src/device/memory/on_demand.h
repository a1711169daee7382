// On-demand paging: regions with pages that may be unmapped until they are used; and
// ibv_advise_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace weft::device {

// Faults the pages in like an access would; false if the access would fault. It costs a system call
// on every access to an on-demand region, because there is no other way to know that the memory is
// mapped.
[[nodiscard]] bool bring_in(std::byte* at, std::uint64_t length_bytes, bool for_writing);

// 0, or an errno of the man page.
int advise_memory(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* slices,
                  std::uint32_t count);

}  // namespace weft::device
