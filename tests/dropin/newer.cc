// Calls what rdma-core 59 to 65 added, as a program does that was built with their header files.
// Prints the first unexpected result and exits with 1. Linked against the drop-in libraries, so
// that it imports the symbols under the versions that those releases gave them.
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <future>
#include <thread>

#include "interop/need.h"

// The declarations have names of their own, because newer header files contain the real ones.
#define NEWER(name) __asm__(#name)

extern "C" {
struct Buf;
struct MrInitAttr {
  size_t length;
  int access;
  uint64_t comp_mask;
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  void* dmah;
  Buf* buf;
};
struct CompCntrCaps {
  uint64_t max_value;
  uint32_t max_counters;
  uint32_t supported_qp_attach_ops;
};

void* alloc_dmah(ibv_context*, void*) NEWER(ibv_alloc_dmah);
ibv_mr* reg_mr_ex(ibv_pd*, MrInitAttr*) NEWER(ibv_reg_mr_ex);
int query_port_speed(ibv_context*, uint32_t, uint64_t*) NEWER(ibv_query_port_speed);
void* alloc_buf(ibv_pd*, size_t, Buf**) NEWER(ibv_alloc_buf);
void free_buf(Buf*) NEWER(ibv_free_buf);
ibv_mr* reg_buf_mr(ibv_pd*, Buf*, void*, size_t, int) NEWER(ibv_reg_buf_mr);
int export_buf_dmabuf_fd(Buf*) NEWER(ibv_export_buf_dmabuf_fd);
int query_comp_cntr_caps(ibv_context*, CompCntrCaps*, size_t) NEWER(_ibv_query_comp_cntr_caps);
void* create_comp_cntr(ibv_context*, void*) NEWER(ibv_create_comp_cntr);
int ep_create(int) NEWER(repoll_create);
int ep_ctl(int, int, int, epoll_event*) NEWER(repoll_ctl);
int ep_wait(int, epoll_event*, int, int) NEWER(repoll_wait);
int write_cm_event(rdma_cm_id*, int, int, uint64_t) NEWER(rdma_write_cm_event);

// What ibv_devinfo and drivers import of the private version of rdma-core 65.
int query_gid_type(ibv_context*, uint8_t, unsigned, int*) NEWER(query_gid_type_65);
int cmd_reg_mr_ex() NEWER(cmd_reg_mr_ex_65);
}
__asm__(
    ".symver query_gid_type_65, ibv_query_gid_type@IBVERBS_PRIVATE_65\n"
    ".symver cmd_reg_mr_ex_65, ibv_cmd_reg_mr_ex@IBVERBS_PRIVATE_65\n");

namespace {

constexpr uint64_t with_iova = 1, with_addr = 2, with_fd = 4, with_fd_offset = 8, with_dmah = 16,
                   with_buf = 32;
constexpr size_t bytes = 10000;
constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;

bool is_refused(ibv_mr* region, int error) {
  return !region && errno == error;
}

void check_buffers(ibv_pd* pd, ibv_pd* other) {
  Buf* buffer = nullptr;
  auto* memory = static_cast<char*>(alloc_buf(pd, bytes, &buffer));
  NEED(memory && buffer);
  NEED(reinterpret_cast<uintptr_t>(memory) % static_cast<size_t>(getpagesize()) == 0);
  std::memset(memory, 1, bytes);
  ibv_mr* whole = reg_buf_mr(pd, buffer, memory, bytes, access);
  NEED(whole && whole->addr == memory && whole->length == bytes && whole->pd == pd);
  NEED(whole->context == pd->context && whole->lkey && whole->rkey);
  ibv_mr* part = reg_buf_mr(pd, buffer, memory + 100, bytes - 100, access);
  NEED(part && part->addr == memory + 100 && part->lkey != whole->lkey);
  NEED(is_refused(reg_buf_mr(pd, buffer, memory + 1, bytes, access), EINVAL));
  NEED(is_refused(reg_buf_mr(pd, buffer, memory - 1, 1, access), EINVAL));
  NEED(is_refused(reg_buf_mr(pd, buffer, memory + 1, SIZE_MAX, access), EINVAL));
  NEED(is_refused(reg_buf_mr(other, buffer, memory, bytes, access), EINVAL));
  NEED_ERROR(export_buf_dmabuf_fd(buffer), ENODATA);
  NEED(ibv_dereg_mr(part) == 0 && ibv_dereg_mr(whole) == 0);
  free_buf(buffer);
  NEED(!alloc_buf(pd, SIZE_MAX / 2, &buffer) && errno == ENOMEM);
}

void check_regions(ibv_pd* pd) {
  static char memory[bytes];
  MrInitAttr wanted{bytes, access, with_addr, 0, memory, -1, 0, nullptr, nullptr};
  ibv_mr* region = reg_mr_ex(pd, &wanted);
  NEED(region && region->addr == memory && region->length == bytes);
  NEED(ibv_dereg_mr(region) == 0);
  wanted.comp_mask = with_addr | with_iova;
  wanted.iova = 4096;
  region = reg_mr_ex(pd, &wanted);
  NEED(region && region->addr == memory);
  NEED(ibv_dereg_mr(region) == 0);
  struct {
    uint64_t mask;
    int error;
  } const refused[] = {{0, EINVAL},
                       {with_iova, EINVAL},
                       {with_addr | with_fd_offset, EINVAL},
                       {with_addr | with_fd, EINVAL},
                       {with_fd, EINVAL},
                       {with_buf, EINVAL},
                       {with_fd | with_fd_offset | with_iova, EOPNOTSUPP},
                       {with_addr | with_dmah, EOPNOTSUPP},
                       {with_addr | 1ULL << 40, EOPNOTSUPP}};
  for (const auto& [mask, error] : refused) {
    wanted.comp_mask = mask;
    NEED(is_refused(reg_mr_ex(pd, &wanted), error));
  }
}

void check_device() {
  ibv_device** list = ibv_get_device_list(nullptr);
  NEED(list && list[0]);
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  NEED(context);
  int type = -1;
  NEED(query_gid_type(context, 1, 1, &type) == 0 && type == 1);  // RoCE v2
  NEED(cmd_reg_mr_ex() == ENOSYS);
  uint64_t speed = 0;
  NEED(query_port_speed(context, 1, &speed) == EOPNOTSUPP);
  NEED(!alloc_dmah(context, nullptr) && errno == EOPNOTSUPP);
  CompCntrCaps caps{};
  NEED(query_comp_cntr_caps(context, &caps, sizeof caps) == EOPNOTSUPP);
  NEED(!create_comp_cntr(context, nullptr) && errno == EOPNOTSUPP);
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_pd* other = ibv_alloc_pd(context);
  NEED(pd && other);
  check_buffers(pd, other);
  check_regions(pd);
  NEED(ibv_dealloc_pd(other) == 0 && ibv_dealloc_pd(pd) == 0);
  NEED(ibv_close_device(context) == 0);
}

void check_events() {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  NEED(channel && rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
  constexpr int user_event = RDMA_CM_EVENT_TIMEWAIT_EXIT + 3;
  NEED(write_cm_event(id, user_event, 7, 1234567890123) == 0);
  rdma_cm_event* event = nullptr;
  NEED(rdma_get_cm_event(channel, &event) == 0);
  uint64_t argument = 0;
  std::memcpy(&argument, &event->param, sizeof argument);
  NEED(event->event == user_event && event->status == 7 && argument == 1234567890123);
  NEED(rdma_ack_cm_event(event) == 0 && rdma_destroy_id(id) == 0);
  rdma_destroy_event_channel(channel);
}

struct Streams {
  int listener, active, passive;

  Streams() : listener(rsocket(AF_INET, SOCK_STREAM, 0)), active(rsocket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    NEED(rbind(listener, name, size) == 0 && rlisten(listener, 1) == 0);
    NEED(rgetsockname(listener, name, &size) == 0);
    auto accepted =
        std::async(std::launch::async, [&] { return raccept(listener, nullptr, nullptr); });
    NEED(rconnect(active, name, size) == 0);
    NEED((passive = accepted.get()) >= 0);
  }
};

epoll_event interest(uint32_t events, uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return event;
}

// Waits for the one event that is due.
void need_event(int set, uint32_t events, uint64_t data) {
  epoll_event found[4]{};
  NEED(ep_wait(set, found, 4, -1) == 1);
  NEED((found[0].events & events) == events && found[0].data.u64 == data);
}

void check_polled_sets() {
  NEED_ERROR(ep_create(1 << 30), EINVAL);
  const int set = ep_create(EPOLL_CLOEXEC);
  NEED(set >= 0);
  Streams streams;
  int ends[2];
  NEED(pipe(ends) == 0);
  epoll_event event = interest(EPOLLIN, 1), found[4];
  NEED_ERROR(ep_ctl(set, EPOLL_CTL_MOD, streams.passive, &event), ENOENT);
  NEED(ep_ctl(set, EPOLL_CTL_ADD, streams.passive, &event) == 0);
  NEED_ERROR(ep_ctl(set, EPOLL_CTL_ADD, streams.passive, &event), EEXIST);
  NEED_ERROR(ep_ctl(set, EPOLL_CTL_ADD, set, &event), EINVAL);
  NEED_ERROR(ep_ctl(set, EPOLL_CTL_ADD, 100000, &event), EBADF);
  NEED_ERROR(ep_wait(streams.passive, found, 4, 0), EINVAL);
  event = interest(EPOLLIN, 2);
  NEED(ep_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
  NEED(ep_wait(set, found, 4, 0) == 0 && ep_wait(set, found, 4, 10) == 0);

  // Both kinds of descriptors wake a thread that waits already, and events last.
  for (int repetition = 0; repetition < 20; ++repetition) {
    auto waiting = std::async(std::launch::async, [&] { need_event(set, EPOLLIN, 1); });
    NEED(rsend(streams.active, "x", 1, 0) == 1);
    waiting.get();
    need_event(set, EPOLLIN, 1);
    char byte = 0;
    NEED(rrecv(streams.passive, &byte, 1, 0) == 1);
    waiting = std::async(std::launch::async, [&] { need_event(set, EPOLLIN, 2); });
    NEED(write(ends[1], "y", 1) == 1);
    waiting.get();
    NEED(read(ends[0], &byte, 1) == 1);
  }
  // A change wakes it as well. With EPOLLONESHOT there is one event for each change.
  auto waiting = std::async(std::launch::async, [&] { need_event(set, EPOLLOUT, 3); });
  event = interest(EPOLLOUT | EPOLLONESHOT, 3);
  NEED(ep_ctl(set, EPOLL_CTL_ADD, streams.active, &event) == 0);
  waiting.get();
  NEED(ep_wait(set, found, 4, 0) == 0);
  NEED(ep_ctl(set, EPOLL_CTL_MOD, streams.active, &event) == 0);
  need_event(set, EPOLLOUT, 3);

  // With room for one event, each descriptor has its turn.
  NEED(rsend(streams.active, "x", 1, 0) == 1);
  need_event(set, EPOLLIN, 1);
  NEED(write(ends[1], "y", 1) == 1);
  uint64_t seen = 0;
  for (int turn = 0; turn < 2; ++turn) {
    NEED(ep_wait(set, found, 1, -1) == 1);
    seen += found[0].data.u64;
  }
  NEED(seen == 1 + 2);

  // Closed descriptors leave the set.
  NEED(ep_ctl(set, EPOLL_CTL_DEL, ends[0], nullptr) == 0);
  NEED(rclose(streams.passive) == 0);
  NEED(ep_wait(set, found, 4, 0) == 0);
  NEED_ERROR(ep_ctl(set, EPOLL_CTL_DEL, streams.passive, nullptr), ENOENT);
  NEED(rclose(set) == 0);
  NEED_ERROR(ep_wait(set, found, 4, 0), EINVAL);
  for (const int end : ends) close(end);
  NEED(rclose(streams.active) == 0 && rclose(streams.listener) == 0);
}

// A number that the program has closed, and that another file has now, is not the same entry.
void check_numbers_used_again() {
  const int set = ep_create(0);
  int ends[2];
  NEED(set >= 0 && pipe(ends) == 0);
  epoll_event event = interest(EPOLLIN | EPOLLOUT, 1), found[4];
  NEED(ep_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
  const int other = socket(AF_INET, SOCK_DGRAM, 0);
  NEED(other >= 0 && dup2(other, ends[0]) == ends[0]);
  NEED_ERROR(ep_ctl(set, EPOLL_CTL_MOD, ends[0], &event), ENOENT);
  event.data.u64 = 2;
  NEED(ep_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
  need_event(set, EPOLLOUT, 2);
  // A socket that could send takes the place of a file that could as well.
  NEED(ep_ctl(set, EPOLL_CTL_DEL, ends[0], nullptr) == 0);
  NEED(ep_ctl(set, EPOLL_CTL_ADD, ends[1], &event) == 0);
  NEED(dup2(other, ends[1]) == ends[1]);
  NEED(ep_wait(set, found, 4, 0) == 0);
  // The number may also be one that the call which waits would use itself.
  NEED(ep_ctl(set, EPOLL_CTL_ADD, ends[1], &event) == 0);
  NEED(close(other) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
  NEED(ep_wait(set, found, 4, 10) == 0);
  NEED(rclose(set) == 0);
}

// As epoll_wait(2): with EINTR.
void check_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  NEED(sigaction(SIGUSR1, &action, nullptr) == 0);
  const int set = ep_create(0);
  Streams streams;
  epoll_event event = interest(EPOLLIN, 1);
  NEED(ep_ctl(set, EPOLL_CTL_ADD, streams.passive, &event) == 0);
  std::atomic<int> thread{0};
  auto waiting = std::async(std::launch::async, [&] {
    thread = static_cast<int>(syscall(SYS_gettid));
    epoll_event found[4];
    NEED_ERROR(ep_wait(set, found, 4, -1), EINTR);
  });
  while (waiting.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (thread != 0) syscall(SYS_tgkill, getpid(), thread.load(), SIGUSR1);
    std::this_thread::yield();
  }
  for (const int each : {set, streams.active, streams.passive, streams.listener}) {
    NEED(rclose(each) == 0);
  }
}

// Events that sockets have as well.
void check_ends() {
  const int set = ep_create(0);
  Streams streams;
  epoll_event event = interest(EPOLLRDHUP, 1);
  NEED(ep_ctl(set, EPOLL_CTL_ADD, streams.passive, &event) == 0);
  NEED(rshutdown(streams.active, SHUT_WR) == 0);
  need_event(set, EPOLLRDHUP, 1);
  for (const int each : {set, streams.active, streams.passive, streams.listener}) {
    NEED(rclose(each) == 0);
  }
}

}  // namespace

int main() {
  check_device();
  check_events();
  check_polled_sets();
  check_numbers_used_again();
  check_signals();
  check_ends();
  std::puts("all as expected");
}
