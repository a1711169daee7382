// A program for the drop-in libraries: it forks while other threads create and destroy objects of
// the device. The child must reach its end, whatever those threads were doing.
//
//   dropin_forks exit FORKS    the child calls _exit(2) at once
//   dropin_forks exec FORKS    the child calls exec
//   dropin_forks use FORKS     the child opens the device itself
//
// It prints what the parent has after some of the forks, and after all of them, each time when the
// other threads have ended.
#include <arpa/inet.h>
#include <dirent.h>
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
#include <fstream>

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

int entries_of(const char* directory) {
  DIR* const open = ::opendir(directory);
  int count = 0;
  while (const dirent* const entry = ::readdir(open)) count += entry->d_name[0] != '.' ? 1 : 0;
  ::closedir(open);
  return count;
}

long resident_kb() {
  std::ifstream file("/proc/self/statm");
  long size = 0;
  long resident = 0;
  file >> size >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

void print_what_is_left(const char* when) {
  std::printf("%s fds=%d threads=%d rss_kb=%ld\n", when, entries_of("/proc/self/fd"),
              entries_of("/proc/self/task"), resident_kb());
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
  print_what_is_left("early");
  right = right && fork_often(context, argv[1], forks - first);
  print_what_is_left("late");
  std::printf("%ld turns of the other threads\n", turns.load());
  return right && turns > 0 ? 0 : 1;
}
