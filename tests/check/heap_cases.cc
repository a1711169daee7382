// Memory of the heap that is freed while it is registered, or while posted requests use it.
#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "check/cases.h"
#include "check/pair.h"

namespace misuse {
namespace {

constexpr std::size_t page = 4096;

ibv_mr* add_region(Pair& pair, void* memory, std::size_t bytes) {
  ibv_mr* region = ibv_reg_mr(pair.pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
  need(region != nullptr, "ibv_reg_mr");
  return region;
}

void remove(ibv_mr* region) {
  need(ibv_dereg_mr(region) == 0, "ibv_dereg_mr");
}

void freed_memory(bool bad) {
  Pair pair;
  void* block = std::malloc(100);
  ibv_mr* region = add_region(pair, block, 100);
  if (!bad) remove(region);
  std::free(block);
  if (bad) remove(region);
  pair.close();
}

// Two regions in one block are one finding; a block that is later in their place is none.
void freed_memory_with_two_regions(bool bad) {
  Pair pair;
  void* block = std::malloc(2000);
  ibv_mr* regions[2] = {add_region(pair, block, 100),
                        add_region(pair, static_cast<char*>(block) + 1000, 100)};
  if (bad) std::free(block);
  if (bad) std::free(std::malloc(2000));
  for (ibv_mr* region : regions) remove(region);
  if (!bad) std::free(block);
  pair.close();
}

// A block that free(3) unmaps.
void freed_memory_large(bool bad) {
  constexpr std::size_t bytes = std::size_t{8} << 20;
  Pair pair;
  void* block = std::malloc(bytes);
  ibv_mr* region = add_region(pair, block, bytes);
  if (bad) std::free(block);
  remove(region);
  if (!bad) std::free(block);
  pair.close();
}

void freed_memory_by_delete(bool bad) {
  Pair pair;
  auto block = std::make_unique<std::uint64_t[]>(64);
  ibv_mr* region = add_region(pair, block.get(), 64 * sizeof block[0]);
  if (bad) block.reset();
  remove(region);
  pair.close();
}

// To a size that needs another place; to the size that the block has.
void freed_memory_by_realloc(bool bad) {
  Pair pair;
  constexpr std::size_t bytes = 1000;
  void* block = std::malloc(bytes);
  void* behind = std::malloc(bytes);
  ibv_mr* region = add_region(pair, block, bytes / 2);
  block = std::realloc(block, bad ? 100 * bytes : bytes);
  need(block != nullptr, "realloc");
  remove(region);
  std::free(behind);
  std::free(block);
  pair.close();
}

void freed_memory_by_shrinking(bool bad) {
  Pair pair;
  constexpr std::size_t bytes = 4000;
  void* block = std::malloc(bytes);
  ibv_mr* region = add_region(pair, block, bytes / 2);
  block = std::realloc(block, bad ? bytes / 4 : bytes / 2);
  need(block != nullptr, "realloc");
  remove(region);
  std::free(block);
  pair.close();
}

// The block beside it in the same page may be freed.
void freed_memory_beside(bool bad) {
  Pair pair;
  void* before = std::malloc(100);
  void* block = std::malloc(100);
  void* behind = std::malloc(100);
  ibv_mr* region = add_region(pair, block, 100);
  std::free(before);
  std::free(behind);
  if (bad) std::free(block);
  remove(region);
  if (!bad) std::free(block);
  pair.close();
}

// A region over many blocks, as programs have it that register what their allocator takes from. The
// whole of it may not be freed.
void freed_memory_of_many(bool bad) {
  Pair pair;
  constexpr std::size_t blocks = 64;
  void* small[blocks];
  for (void*& each : small) each = std::malloc(200);
  auto first = reinterpret_cast<std::uintptr_t>(small[0]);
  auto last = first;
  for (void* each : small) {
    const auto at = reinterpret_cast<std::uintptr_t>(each);
    first = at < first ? at : first;
    last = at > last ? at : last;
  }
  ibv_mr* region = add_region(pair, reinterpret_cast<void*>(first), last + 200 - first);
  for (void* each : small) std::free(each);
  remove(region);
  void* arena = std::malloc(32 * page);
  region = add_region(pair, static_cast<char*>(arena) + page, page);
  if (bad) std::free(arena);
  remove(region);
  if (!bad) std::free(arena);
  pair.close();
}

// The near one frees the block behind the completion.
void freed_posted(bool bad) {
  Pair pair;
  auto* block = static_cast<char*>(std::malloc(page));
  ibv_mr* region = add_region(pair, block, page);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(block) + 64, 64, region->lkey};
  ibv_recv_wr request{.wr_id = 1, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* failing = nullptr;
  need(ibv_post_recv(pair.receiver, &request, &failing) == 0, "ibv_post_recv");
  if (bad) std::free(block);
  need(pair.send(IBV_WR_SEND, pair.piece(0, 64), IBV_SEND_SIGNALED) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  Pair::poll(pair.receiver_cq);
  remove(region);
  if (!bad) std::free(block);
  pair.close();
}

// One block of a larger region, which stays registered: its neighbour may be freed.
void freed_posted_in_larger_region(bool bad) {
  Pair pair;
  constexpr std::size_t bytes = 200;
  char* blocks[2] = {static_cast<char*>(std::malloc(bytes)),
                     static_cast<char*>(std::malloc(bytes))};
  if (blocks[1] < blocks[0]) std::swap(blocks[0], blocks[1]);
  const auto first = reinterpret_cast<std::uintptr_t>(blocks[0]);
  const auto second = reinterpret_cast<std::uintptr_t>(blocks[1]);
  ibv_mr* region = add_region(pair, blocks[0], second + bytes - first);
  const ibv_sge piece{second, bytes, region->lkey};
  need(pair.send(IBV_WR_RDMA_WRITE, piece, 0) == 0, "ibv_post_send");
  std::free(blocks[bad ? 1 : 0]);
  // Of memory that the first Write does not change.
  need(pair.send(IBV_WR_RDMA_WRITE, pair.piece(1024, 8), IBV_SEND_SIGNALED) == 0, "ibv_post_send");
  Pair::poll(pair.sender_cq);
  remove(region);
  std::free(blocks[bad ? 0 : 1]);
  pair.close();
}

// The child of a fork(2) may free what its parent has registered.
void freed_memory_in_child(bool bad) {
  need(ibv_fork_init() == 0, "ibv_fork_init");
  Pair pair;
  void* block = std::malloc(100);
  ibv_mr* region = add_region(pair, block, 100);
  const pid_t child = fork();
  if (child == 0) {
    std::free(block);
    _exit(0);
  }
  need(waitpid(child, nullptr, 0) == child, "waitpid");
  if (bad) std::free(block);
  remove(region);
  if (!bad) std::free(block);
  pair.close();
}

// Other threads free blocks of the same pages, and use realloc(3), all the time.
void freed_memory_beside_threads(bool bad) {
  Pair pair;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&stop] {
      while (!stop) {
        void* blocks[16];
        for (void*& each : blocks) each = std::malloc(100);
        for (void*& each : blocks) each = std::realloc(each, 150);
        for (void*& each : blocks) std::free(each);
      }
    });
  }
  for (int i = 0; i < 300; ++i) {
    void* block = std::malloc(100);
    ibv_mr* region = add_region(pair, block, 100);
    if (bad) std::free(block);
    remove(region);
    if (!bad) std::free(block);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  pair.close();
}

}  // namespace

Cases heap_cases() {
  return {{"freed-memory", freed_memory},
          {"freed-memory.large", freed_memory_large},
          {"freed-memory.with-two-regions", freed_memory_with_two_regions},
          {"freed-memory.by-delete", freed_memory_by_delete},
          {"freed-memory.by-realloc", freed_memory_by_realloc},
          {"freed-memory.by-shrinking", freed_memory_by_shrinking},
          {"freed-memory.beside", freed_memory_beside},
          {"freed-memory.of-many", freed_memory_of_many},
          {"freed-memory.in-child", freed_memory_in_child},
          {"freed-memory.beside-threads", freed_memory_beside_threads},
          {"freed-posted", freed_posted},
          {"freed-posted.in-larger-region", freed_posted_in_larger_region}};
}

}  // namespace misuse
