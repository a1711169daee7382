// A program for the drop-in libraries: threads that wait for each kind of event are cancelled, as
// rping does. The libraries bring a C++ runtime of their own; unwinding must not depend on it.
//
//   dropin_cancelled          cancels each kind of thread
//   dropin_cancelled LIMIT    the process may have LIMIT descriptors, and none is left when a
//   thread
//                             ends: the C library cannot load libgcc_s then
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

void* wait_for_completion(void* channel) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ibv_get_cq_event(static_cast<ibv_comp_channel*>(channel), &cq, &context);
  return nullptr;
}

void* wait_for_device(void* context) {
  ibv_async_event event{};
  ibv_get_async_event(static_cast<ibv_context*>(context), &event);
  return nullptr;
}

void* wait_for_connection(void* channel) {
  rdma_cm_event* event = nullptr;
  rdma_get_cm_event(static_cast<rdma_event_channel*>(channel), &event);
  return nullptr;
}

bool cancelled(const char* name, void* (*wait)(void*), void* argument) {
  pthread_t thread{};
  void* result = nullptr;
  if (!argument || pthread_create(&thread, nullptr, wait, argument) != 0) return false;
  pthread_cancel(thread);
  pthread_join(thread, &result);
  std::printf("%s: %s\n", name, result == PTHREAD_CANCELED ? "cancelled" : "returned");
  return result == PTHREAD_CANCELED;
}

void* wait_for_cancellation(void* /*argument*/) {
  while (true) ::pause();
}

// The device may lack descriptors, too. Then there is only the thread.
bool cancelled_without_descriptors(rlim_t limit) {
  (void)close_range(3, ~0U, 0);  // that the program was started with
  rlimit few{};
  getrlimit(RLIMIT_NOFILE, &few);
  few.rlim_cur = limit;
  if (setrlimit(RLIMIT_NOFILE, &few) != 0) return false;
  ibv_device** devices = ibv_get_device_list(nullptr);
  ibv_context* context = devices && devices[0] ? ibv_open_device(devices[0]) : nullptr;
  rdma_event_channel* channel = context ? rdma_create_event_channel() : nullptr;
  while (::dup(0) >= 0) {
  }
  return cancelled("pause", wait_for_cancellation, &few) &&
         (!channel || cancelled("rdma_get_cm_event", wait_for_connection, channel));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) {
    return cancelled_without_descriptors(static_cast<rlim_t>(std::atoi(argv[1]))) ? 0 : 1;
  }
  ibv_device** devices = ibv_get_device_list(nullptr);
  ibv_context* context = devices ? ibv_open_device(devices[0]) : nullptr;
  if (!context) return 2;
  const bool all =
      cancelled("ibv_get_cq_event", wait_for_completion, ibv_create_comp_channel(context)) &&
      cancelled("ibv_get_async_event", wait_for_device, context) &&
      cancelled("rdma_get_cm_event", wait_for_connection, rdma_create_event_channel());
  return all ? 0 : 1;
}
