// On-demand paging: regions whose memory need not exist before it is used, and ibv_advise_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace weft::device {

// Brings the pages in, as an access would; false where an access would fault. One system call,
// which every access to an on-demand region pays: nothing else tells whether memory is there.
[[nodiscard]] bool bring_in(std::byte* at, std::uint64_t length_bytes, bool for_writing);

// 0, or an errno value as the man page has them.
int advise_memory(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* slices,
                  std::uint32_t count);

}  // namespace weft::device
