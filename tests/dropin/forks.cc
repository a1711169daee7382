// A program for the drop-in libraries: it forks while other threads create and destroy objects of
// the device. The child must reach its end, whatever those threads were doing.
//
//   dropin_forks exit FORKS    the child calls _exit(2) at once
//   dropin_forks exec FORKS    the child calls exec
//   dropin_forks use FORKS     the child opens the device itself
//
// Fails as well where the parent has more descriptors, threads or memory in the end than after a
// quarter of the forks, each time when the other threads have ended.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "support/own_figures.h"

namespace {

constexpr unsigned kChildSeconds = 50;  // SIGALRM ends a child that hangs
std::atomic<bool> ends{false};
std::atomic<long> turns{0};

struct Objects {
  ibv_pd* domain;
  ibv_comp_channel* channel;
  ibv_cq* queue;
};

ibv_qp* make_queue_pair(const Objects& objects) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = objects.queue;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {4, 4, 1, 1, 0};
  return ibv_create_qp(objects.domain, &wanted);
}

// Creates one of each kind and destroys them.
bool make_objects(ibv_context* context) {
  static thread_local std::array<char, 4096> memory;
  const Objects objects{ibv_alloc_pd(context), ibv_create_comp_channel(context), nullptr};
  ibv_cq* queue = ibv_create_cq(context, 16, nullptr, objects.channel, 0);
  const Objects all{objects.domain, objects.channel, queue};
  if (!all.domain || !all.channel || !all.queue) return false;
  std::array<ibv_qp*, 4> queue_pairs{};
  for (ibv_qp*& made : queue_pairs) made = make_queue_pair(all);
  ibv_mr* region = ibv_reg_mr(all.domain, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  bool right = region && ibv_dereg_mr(region) == 0;
  for (ibv_qp* made : queue_pairs) right &= made && ibv_destroy_qp(made) == 0;
  right &= ibv_destroy_cq(all.queue) == 0 && ibv_destroy_comp_channel(all.channel) == 0;
  return ibv_dealloc_pd(all.domain) == 0 && right;
}

bool make_listener() {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  if (!channel || rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) return false;
  sockaddr_in any_port{};
  any_port.sin_family = AF_INET;
  any_port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool listens =
      rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&any_port)) == 0 && rdma_listen(id, 1) == 0;
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
  return listens;
}

void* churn(void* context) {
  while (!ends) {
    if (!make_objects(static_cast<ibv_context*>(context)) || !make_listener()) std::abort();
    ++turns;
  }
  return nullptr;
}

ibv_context* open_device() {
  ibv_device** devices = ibv_get_device_list(nullptr);
  return devices && devices[0] ? ibv_open_device(devices[0]) : nullptr;
}

[[noreturn]] void run_child(const char* manner) {
  ::alarm(kChildSeconds);
  if (std::strcmp(manner, "exec") == 0) ::execlp("true", "true", nullptr);
  if (std::strcmp(manner, "use") == 0) {
    ibv_context* context = open_device();
    ::_exit(context && make_objects(context) && make_listener() ? 0 : 1);
  }
  ::_exit(std::strcmp(manner, "exit") == 0 ? 0 : 1);
}

struct Figures {
  std::size_t descriptors = weft::test::own_descriptors();
  std::size_t threads = weft::test::own_threads();
  long resident_kb = weft::test::own_resident_kb();
};

// Prints both, for a table. Some descriptors are closed a moment after their owner is destroyed,
// and the device starts a thread when it first needs it. What leaks with each fork is much more.
bool has_grown(const Figures& early, const Figures& late) {
  constexpr std::size_t descriptor_slack = 4;
  constexpr std::size_t thread_slack = 2;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr long slack_kb = 1024 * 1024;  // the runtime keeps what was freed
#else
  constexpr long slack_kb = 8 * 1024;
#endif
  std::printf("descriptors %zu to %zu, threads %zu to %zu, memory %ld KiB %+ld\n",
              early.descriptors, late.descriptors, early.threads, late.threads, early.resident_kb,
              late.resident_kb - early.resident_kb);
  return late.descriptors > early.descriptors + descriptor_slack ||
         late.threads > early.threads + thread_slack ||
         late.resident_kb > early.resident_kb + slack_kb;
}

bool fork_once(const char* manner, int turn) {
  const pid_t child = ::fork();
  if (child == 0) run_child(manner);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return false;
  if (status != 0) std::printf("child %d ended with status %#x\n", turn, status);
  return status == 0;
}

// Forks beside the other threads, which have ended afterwards.
bool fork_often(ibv_context* context, const char* manner, int forks) {
  ends = false;
  std::array<pthread_t, 3> threads{};
  for (pthread_t& thread : threads) {
    if (pthread_create(&thread, nullptr, churn, context) != 0) std::abort();
  }
  bool right = true;
  for (int turn = 0; turn < forks && right; ++turn) right = fork_once(manner, turn);
  ends = true;
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  ibv_context* context = open_device();
  if (!context) return 2;
  const int forks = std::atoi(argv[2]);
  const int first = forks / 4;  // what grows once has grown then
  bool right = fork_often(context, argv[1], first);
  const Figures early;
  right = right && fork_often(context, argv[1], forks - first);
  const bool grown = has_grown(early, Figures());
  std::printf("%ld turns of the other threads\n", turns.load());
  return right && !grown && turns > 0 ? 0 : 1;
}
