// Replacements of the functions by which a program transfers bytes without a call of its own for
// each transfer: io_uring, POSIX AIO and the AIO of the kernel. The kernel and threads of the C
// library carry these requests out, and would find the bytes of the visible socket, which mean
// nothing.
//
// Calls that make an io_uring fail with ENOSYS. Many kernels and sandboxes have no io_uring, so
// programs then use the calls for sockets, which this library serves. Both kinds of AIO are rare,
// and programs have nothing else to use: a relay lets the kernel carry the bytes of their
// connections.
#include <aio.h>
#include <linux/aio_abi.h>

#include <atomic>
#include <cerrno>

#include "interpose/asynchronous.h"
#include "interpose/data.h"
#include "interpose/export.h"
#include "interpose/kernel_transfer.h"
#include "interpose/next.h"
#include "interpose/process.h"

using namespace weft::interpose;

struct io_uring;
struct io_uring_params;
struct io_uring_probe;

namespace weft::interpose {

int refuse_ring() {
  static std::atomic_flag printed;
  return guarded([] {
    if (!printed.test_and_set()) {
      print_notice(
          "the program is told that the kernel has no io_uring, which would bypass the streams; "
          "most programs use epoll then");
    }
    return fail_with(ENOSYS);
  });
}

bool prepare_kernel_aio(long count, void* const* requests) {
  for (long i = 0; i < count; ++i) {
    const auto& request = *static_cast<const iocb*>(requests[i]);
    switch (request.aio_lio_opcode) {
      case IOCB_CMD_PREAD:
      case IOCB_CMD_PREADV:
      case IOCB_CMD_PWRITE:
      case IOCB_CMD_PWRITEV:
        if (!relay_for_kernel(static_cast<int>(request.aio_fildes))) return false;
        break;
      default:  // those that transfer nothing, such as IOCB_CMD_POLL
        break;
    }
  }
  return true;
}

}  // namespace weft::interpose

// --- io_uring ------------------------------------------------------------------------------------
//
// The functions of liburing, which calls the kernel without the C library. They return negative
// errno values.

WEFT_INTERPOSED int io_uring_queue_init(unsigned, io_uring*, unsigned) {
  return refuse_ring() < 0 ? -errno : 0;
}
WEFT_INTERPOSED int io_uring_queue_init_params(unsigned, io_uring*, io_uring_params*) {
  return refuse_ring() < 0 ? -errno : 0;
}
WEFT_INTERPOSED int io_uring_queue_init_try_nosqarr(unsigned, io_uring*, io_uring_params*) {
  return refuse_ring() < 0 ? -errno : 0;
}
WEFT_INTERPOSED int io_uring_queue_init_mem(unsigned, io_uring*, io_uring_params*, void*, size_t) {
  return refuse_ring() < 0 ? -errno : 0;
}
WEFT_INTERPOSED int io_uring_setup(unsigned, io_uring_params*) {
  return refuse_ring() < 0 ? -errno : 0;
}
// Null: io_uring_get_probe(3).
WEFT_INTERPOSED io_uring_probe* io_uring_get_probe() {
  (void)refuse_ring();
  return nullptr;
}

// --- POSIX AIO: threads of the C library call internal functions ---------------------------------

namespace {

constinit next::Function<int(aiocb*)> next_aio_read{"aio_read"};
constinit next::Function<int(aiocb64*)> next_aio_read64{"aio_read64"};
constinit next::Function<int(aiocb*)> next_aio_write{"aio_write"};
constinit next::Function<int(aiocb64*)> next_aio_write64{"aio_write64"};
constinit next::Function<int(int, aiocb* const*, int, sigevent*)> next_lio_listio{"lio_listio"};
constinit next::Function<int(int, aiocb64* const*, int, sigevent*)> next_lio_listio64{
    "lio_listio64"};

template <typename Control>
bool prepare_list(Control* const* list, int count) {
  for (int i = 0; i < count; ++i) {
    if (!list[i] || list[i]->aio_lio_opcode == LIO_NOP) continue;
    if (!relay_for_kernel(list[i]->aio_fildes)) return false;
  }
  return true;
}

}  // namespace

WEFT_INTERPOSED int aio_read(aiocb* control) noexcept {
  return relay_for_kernel(control->aio_fildes) ? next_aio_read(control) : -1;
}
WEFT_INTERPOSED int aio_read64(aiocb64* control) noexcept {
  return relay_for_kernel(control->aio_fildes) ? next_aio_read64(control) : -1;
}
WEFT_INTERPOSED int aio_write(aiocb* control) noexcept {
  return relay_for_kernel(control->aio_fildes) ? next_aio_write(control) : -1;
}
WEFT_INTERPOSED int aio_write64(aiocb64* control) noexcept {
  return relay_for_kernel(control->aio_fildes) ? next_aio_write64(control) : -1;
}
WEFT_INTERPOSED int lio_listio(int mode, aiocb* const* list, int count, sigevent* event) noexcept {
  return prepare_list(list, count) ? next_lio_listio(mode, list, count, event) : -1;
}
WEFT_INTERPOSED int lio_listio64(int mode, aiocb64* const* list, int count,
                                 sigevent* event) noexcept {
  return prepare_list(list, count) ? next_lio_listio64(mode, list, count, event) : -1;
}

// --- AIO of the kernel: the function of libaio, which returns negative errno values --------------

namespace {

constinit next::Function<int(void*, long, void* const*)> next_io_submit{"io_submit"};

}  // namespace

WEFT_INTERPOSED int io_submit(void* context, long count, void* const* requests) {
  return prepare_kernel_aio(count, requests) ? next_io_submit(context, count, requests) : -errno;
}
