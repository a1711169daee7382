// Interfaces by which the kernel transfers bytes without a call for each transfer, so that no
// replaced function sees it (calls_asynchronous.cc).
#pragma once

namespace weft::interpose {

// io_uring_setup(2) on a kernel without io_uring: -1 with errno. Says so once.
int refuse_ring();
// Before io_submit(2): the connections that it uses are relayed from then on. False with errno.
[[nodiscard]] bool prepare_kernel_aio(long count, void* const* requests);

}  // namespace weft::interpose
