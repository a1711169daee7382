// Uses page-aligned memory as programs do that know nothing of the shared heap of `weft run`, and
// looks for differences to ordinary memory.
//
// usage: shared_heap SCENARIO
#include <infiniband/verbs.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "interop/need.h"
#include "interop/touch_in_children.h"

// What follows uses freed memory on purpose.
#pragma GCC diagnostic ignored "-Wuse-after-free"
#pragma GCC diagnostic ignored "-Walloc-size-larger-than="

namespace {

constexpr std::size_t page = 4096;
constexpr int access_all =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

unsigned char* take(std::size_t bytes, std::size_t alignment = page) {
  void* block = nullptr;
  NEED(posix_memalign(&block, alignment, bytes) == 0);
  NEED(reinterpret_cast<std::uintptr_t>(block) % alignment == 0);
  return static_cast<unsigned char*>(block);
}

bool holds(const unsigned char* at, std::size_t bytes, int value) {
  return std::all_of(at, at + bytes, [value](unsigned char byte) { return byte == value; });
}

// Whether an address lies in the shared heap, by the name of its mapping.
bool is_shared(const void* at) {
  std::ifstream maps("/proc/self/maps");
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  for (std::string line; std::getline(maps, line);) {
    char* end = nullptr;
    const std::uintptr_t from = std::strtoull(line.c_str(), &end, 16);
    const std::uintptr_t to = std::strtoull(end + 1, nullptr, 16);
    if (address >= from && address < to) return line.find("weft-heap") != std::string::npos;
  }
  return false;
}

// Runs `child` in a child of fork(2), which exits with status 0 if it returns.
void in_child(const std::function<void()>& child) {
  std::fflush(nullptr);
  const pid_t made = fork();
  NEED(made >= 0);
  if (made == 0) {
    child();
    std::fflush(nullptr);
    _exit(0);
  }
  int status = 0;
  NEED(waitpid(made, &status, 0) == made);
  NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Two processes in turn.
class Turns {
 public:
  Turns() { NEED(pipe(pipe_.data()) == 0); }
  void give() const { NEED(write(pipe_[1], "x", 1) == 1); }
  void await() const {
    char byte = 0;
    NEED(read(pipe_[0], &byte, 1) == 1);
  }

 private:
  std::array<int, 2> pipe_{};
};

// A device, and two queue pairs of this process that are connected to each other.
class Device {
 public:
  Device() {
    ibv_device** devices = ibv_get_device_list(nullptr);
    NEED(devices && devices[0]);
    context_ = ibv_open_device(devices[0]);
    NEED(context_);
    ibv_free_device_list(devices);
    domain_ = ibv_alloc_pd(context_);
    queue_ = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
    NEED(domain_ && queue_);
  }

  ibv_mr* add(void* at, std::size_t bytes) {
    ibv_mr* const region = ibv_reg_mr(domain_, at, bytes, access_all);
    NEED(region);
    return region;
  }

  void connect() {
    for (ibv_qp*& end : ends_) {
      ibv_qp_init_attr attributes{};
      attributes.send_cq = attributes.recv_cq = queue_;
      attributes.cap = {.max_send_wr = 4,
                        .max_recv_wr = 4,
                        .max_send_sge = 1,
                        .max_recv_sge = 1,
                        .max_inline_data = 0};
      attributes.qp_type = IBV_QPT_RC;
      end = ibv_create_qp(domain_, &attributes);
      NEED(end);
    }
    for (int i = 0; i < 2; ++i) advance(ends_.at(i), ends_.at(1 - i)->qp_num);
  }

  // Writes `bytes` bytes and waits for the completion.
  void write(const unsigned char* from, const ibv_mr& source, unsigned char* to,
             const ibv_mr& target, std::size_t bytes) {
    ibv_sge slice{reinterpret_cast<std::uintptr_t>(from), static_cast<std::uint32_t>(bytes),
                  source.lkey};
    ibv_send_wr request{};
    request.sg_list = &slice;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {reinterpret_cast<std::uintptr_t>(to), target.rkey};
    ibv_send_wr* bad = nullptr;
    NEED(ibv_post_send(ends_[0], &request, &bad) == 0);
    ibv_wc completion{};
    while (ibv_poll_cq(queue_, 1, &completion) == 0) {
    }
    NEED(completion.status == IBV_WC_SUCCESS);
  }

 private:
  void advance(ibv_qp* end, std::uint32_t peer) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = access_all;
    NEED(ibv_modify_qp(end, &attributes,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    NEED(ibv_query_gid(context_, 1, 0, &attributes.ah_attr.grh.dgid) == 0);
    NEED(ibv_modify_qp(end, &attributes,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 18;
    attributes.retry_cnt = attributes.rnr_retry = 7;
    NEED(ibv_modify_qp(end, &attributes,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }

  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_cq* queue_ = nullptr;
  std::array<ibv_qp*, 2> ends_{};
};

// --- Scenarios -----------------------------------------------------------------------------------

// Parent and child have memory of their own, and the parent goes on to serve its peers.
void forks() {
  Device device;
  unsigned char* const block = take(1 << 20);
  NEED(is_shared(block));
  std::memset(block, 1, 1 << 20);
  unsigned char* const source = take(page);
  std::memset(source, 7, page);
  const ibv_mr* const region = device.add(block, 1 << 20);
  const ibv_mr* const from = device.add(source, page);
  device.connect();
  device.write(source, *from, block, *region, page);
  Turns child_first;
  Turns parent_first;
  in_child([&] {
    NEED(holds(block, page, 7) && holds(block + page, (1 << 20) - page, 1));
    std::memset(block, 2, 1 << 20);
    in_child([&] {
      NEED(holds(block, 1 << 20, 2));
      std::memset(block, 3, 1 << 20);
    });
    NEED(holds(block, 1 << 20, 2));
    unsigned char* const more = take(3 * page);
    std::memset(more, 4, 3 * page);
    free(more);
    free(block);
  });
  NEED(holds(block, page, 7) && holds(block + page, (1 << 20) - page, 1));
  const pid_t made = fork();
  NEED(made >= 0);
  if (made == 0) {
    child_first.give();
    parent_first.await();
    _exit(holds(block, page, 7) && holds(block + page, page, 1) ? 0 : 1);
  }
  child_first.await();
  std::memset(block, 9, page);
  device.write(source, *from, block + page, *region, page);
  NEED(holds(block, page, 9) && holds(block + page, page, 7));
  parent_first.give();
  int status = 0;
  NEED(waitpid(made, &status, 0) == made && status == 0);
}

// A block that is freed while it is registered has no other user before it is deregistered.
void frees() {
  Device device;
  unsigned char* const source = take(page);
  const ibv_mr* const from = device.add(source, page);
  device.connect();
  for (const std::size_t bytes : {page, 64 * page}) {
    unsigned char* const block = take(bytes);
    NEED(is_shared(block));
    ibv_mr* const region = device.add(block, bytes);
    ibv_mr* const again = device.add(block, page);
    free(block);
    std::vector<unsigned char*> others;
    for (int i = 0; i < 16; ++i) {
      others.push_back(take(bytes));
      NEED(others.back() >= block + bytes || others.back() + bytes <= block);
      std::memset(others.back(), 5, bytes);
    }
    std::memset(source, 8, page);
    device.write(source, *from, block, *region, page);
    for (const unsigned char* other : others) NEED(holds(other, bytes, 5));
    NEED(ibv_dereg_mr(region) == 0);
    unsigned char* const still = take(bytes);
    NEED(still != block);
    NEED(ibv_dereg_mr(again) == 0);
    NEED(take(bytes) == block);
  }
}

// madvise(2), mprotect(2), realloc(3) and the others.
void pages() {
  const Device device;
  unsigned char* const block = take(8 * page);
  NEED(is_shared(block));
  std::memset(block, 1, 8 * page);
  NEED(madvise(block + page, 2 * page, MADV_DONTNEED) == 0);
  NEED(holds(block, page, 1) && holds(block + page, 2 * page, 0) &&
       holds(block + 3 * page, page, 1));
  NEED(madvise(block, page, MADV_FREE) == 0);
  NEED(malloc_usable_size(block) == 8 * page);
  // A page that is protected when its block is freed is usable by the next user of the block.
  NEED(mprotect(block + page, page, PROT_NONE) == 0);
  in_child([&] {
    NEED(signal(SIGSEGV, [](int) { _exit(0); }) != SIG_ERR);
    block[page] = 1;
    _exit(1);
  });
  free(block);
  NEED(take(8 * page) == block);
  std::memset(block, 3, 8 * page);
  auto* const longer = static_cast<unsigned char*>(realloc(block, 16 * page));
  NEED(longer && holds(longer, 8 * page, 3));
  auto* const shorter = static_cast<unsigned char*>(realloc(longer, page + 1));
  NEED(shorter && holds(shorter, page + 1, 3) && malloc_usable_size(shorter) == 2 * page);
  auto* const array = static_cast<unsigned char*>(reallocarray(shorter, 2, 1 << 20));
  NEED(array && holds(array, page + 1, 3));
  NEED(realloc(array, 0) == nullptr);
  for (const std::size_t alignment : {page, 4 * page, std::size_t{2} << 20}) {
    unsigned char* const aligned = take(3 * page, alignment);
    std::memset(aligned, 1, 3 * page);
    free(aligned);
  }
  for (void* each : {valloc(10), pvalloc(10), memalign(page, 10), aligned_alloc(page, page)}) {
    NEED(is_shared(each));
    free(each);
  }
  unsigned char* const ordinary = take(100, 64);
  NEED(!is_shared(ordinary));
  free(ordinary);
}

// --- Stacks

std::atomic<int> thread_step{0};

void* run_thread(void* /*unused*/) {
  volatile int local = 3;
  thread_step = 1;
  while (thread_step != 2) usleep(100);
  NEED(local == 3);
  in_child([&] { local = 4; });
  NEED(local == 3);
  return nullptr;
}

ucontext_t main_context;
ucontext_t other_context;

void run_context() {
  volatile int local = 5;
  in_child([&] {
    NEED(local == 5);
    local = 6;
  });
  NEED(local == 5);
}

// Threads and contexts whose stacks are in the heap, and fork(2) on them.
void stacks() {
  const Device device;
  constexpr std::size_t bytes = 256 << 10;
  unsigned char* const stack = take(bytes);
  NEED(is_shared(stack));
  NEED(mprotect(stack, page, PROT_NONE) == 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  NEED(pthread_attr_setstack(&attributes, stack, bytes) == 0);
  pthread_t thread{};
  NEED(pthread_create(&thread, &attributes, run_thread, nullptr) == 0);
  while (thread_step != 1) usleep(100);
  for (int i = 0; i < 10; ++i) in_child([] { NEED(std::string("a").size() == 1); });
  thread_step = 2;
  NEED(pthread_join(thread, nullptr) == 0);
  free(stack);
  unsigned char* const context_stack = take(bytes);
  NEED(context_stack == stack && is_shared(context_stack));
  for (int i = 0; i < 3; ++i) {
    NEED(getcontext(&other_context) == 0);
    other_context.uc_stack.ss_sp = context_stack;
    other_context.uc_stack.ss_size = bytes;
    other_context.uc_link = &main_context;
    makecontext(&other_context, run_context, 0);
    NEED(swapcontext(&main_context, &other_context) == 0);
  }
  free(context_stack);
  NEED(is_shared(take(bytes)));
}

// --- Others

// clone(2) calls no handlers, so its child has no heap: it cannot write to its parent's memory.
void clones() {
  const Device device;
  unsigned char* const block = take(page);
  NEED(is_shared(block));
  std::memset(block, 1, page);
  std::fflush(nullptr);
  const long made = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  NEED(made >= 0);
  if (made == 0) {
    unsigned char* const other = take(page);  // ordinary memory
    std::memset(other, 1, page);
    free(block);
    block[0] = 2;
    _exit(0);
  }
  int status = 0;
  NEED(waitpid(static_cast<pid_t>(made), &status, 0) == made);
  NEED(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  NEED(holds(block, page, 1));
}

// Beyond the limit, memory is ordinary.
void limit() {
  Device device;
  std::vector<unsigned char*> blocks;
  std::size_t shared = 0;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(take(64 << 10));
    std::memset(blocks.back(), i, 64 << 10);
    shared += is_shared(blocks.back()) ? 1 : 0;
  }
  NEED(shared == 16);
  NEED(!is_shared(take(4 << 20)));
  for (int i = 0; i < 40; ++i) {
    NEED(holds(blocks[i], 64 << 10, i));
    NEED(ibv_dereg_mr(device.add(blocks[i], 64 << 10)) == 0);
    free(blocks[i]);
  }
  NEED(is_shared(take(1 << 20)));
}

// The program takes the heap's descriptor for one of its own.
void descriptor() {
  Device device;
  unsigned char* const block = take(page);
  NEED(is_shared(block));
  std::memset(block, 1, page);
  int number = -1;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    const auto to = std::filesystem::read_symlink(each.path(), none);
    if (to.string().find("weft-heap") != std::string::npos)
      number = std::stoi(each.path().filename());
  }
  NEED(number >= 0);
  std::FILE* const own = std::tmpfile();
  NEED(own && std::fwrite("mine", 1, 4, own) == 4 && std::fflush(own) == 0);
  NEED(dup2(fileno(own), number) == number);
  unsigned char* const more = take(64 << 20);  // as far as nothing was mapped
  std::memset(more, 2, 64 << 20);
  NEED(ibv_dereg_mr(device.add(block, page)) == 0);
  in_child([&] {
    NEED(holds(block, page, 1));
    std::memset(block, 2, page);
    std::memset(take(page), 2, page);
  });
  NEED(holds(block, page, 1));
  free(more);
  free(block);
  std::array<char, 8> back{};
  NEED(pread(number, back.data(), back.size(), 0) == 4 && std::memcmp(back.data(), "mine", 4) == 0);
}

// A handler of a library in the child, from before all others, writes to the child's memory.
void handlers() {
  const Device device;
  touched_in_children = take(page);
  NEED(is_shared(touched_in_children));
  touched_in_children[0] = 1;
  in_child([] { NEED(touched_in_children[0] == 9); });
  NEED(touched_in_children[0] == 1);
}

// Threads that allocate, while another one forks.
void threads() {
  const Device device;
  std::atomic<bool> over{false};
  std::vector<std::thread> all;
  for (unsigned seed = 0; seed < 4; ++seed) {
    all.emplace_back([&over, seed] {
      unsigned state = seed;
      std::array<unsigned char*, 16> blocks{};
      std::array<std::size_t, 16> sizes{};
      while (!over) {
        const std::size_t at = rand_r(&state) % blocks.size();
        if (blocks[at]) NEED(holds(blocks[at], sizes[at], static_cast<int>(at + seed)));
        free(blocks[at]);
        sizes[at] = 1 + rand_r(&state) % (20 * page);
        blocks[at] = take(sizes[at]);
        std::memset(blocks[at], static_cast<int>(at + seed), sizes[at]);
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    in_child([] {
      unsigned char* const block = take(10 * page);
      std::memset(block, 1, 10 * page);
      free(block);
    });
  }
  over = true;
  for (std::thread& each : all) each.join();
}

// With WEFT_SHARED_HEAP=all.
void all() {
  const Device device;
  void* const large = malloc(64 << 10);
  void* const small = malloc(1000);
  NEED(is_shared(large) && !is_shared(small));
  std::memset(large, 1, 64 << 10);
  free(large);
  auto* const zeros = static_cast<unsigned char*>(calloc(64, 1024));
  NEED(is_shared(zeros) && holds(zeros, 64 << 10, 0));
  free(zeros);
  free(small);
  const std::string text(1 << 20, 'x');
  in_child([&] { NEED(text == std::string(1 << 20, 'x')); });
  NEED(calloc(SIZE_MAX, 2) == nullptr);
}

// Where `weft run` was told not to have it, or cannot.
void off() {
  const Device device;
  NEED(!is_shared(take(page)));
}

// A program without a device has ordinary memory.
void no_device() {
  NEED(!is_shared(take(page)));
}

}  // namespace

int main(int count, char** words) {
  const std::map<std::string, void (*)()> scenarios{{"forks", forks},
                                                    {"frees", frees},
                                                    {"pages", pages},
                                                    {"stacks", stacks},
                                                    {"clones", clones},
                                                    {"limit", limit},
                                                    {"descriptor", descriptor},
                                                    {"handlers", handlers},
                                                    {"threads", threads},
                                                    {"all", all},
                                                    {"off", off},
                                                    {"no_device", no_device}};
  const auto found = count == 2 ? scenarios.find(words[1]) : scenarios.end();
  if (found == scenarios.end()) {
    std::puts("usage: shared_heap SCENARIO");
    return 2;
  }
  found->second();
  return 0;
}
