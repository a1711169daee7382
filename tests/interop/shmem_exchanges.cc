// Two processes of OpenSHMEM that put, get, add and exchange data in each other's memory, and
// compare. They print that and wait to be killed, because Open MPI 4.1 crashes in its finalization
// and at exit, with and without a device.

#include <shmem.h>
#include <unistd.h>

#include <array>

#include "interop/need.h"

namespace {

constexpr std::array<std::size_t, 4> sizes{1, 4096, 65536, 1 << 20};
constexpr std::size_t most_bytes = 1 << 20;
constexpr long increments = 100;

char pattern(int process, std::size_t at) {
  return static_cast<char>(at * 37 + static_cast<std::size_t>(process) * 101 + 5);
}

}  // namespace

int main() {
  shmem_init();
  const int self = shmem_my_pe();
  const int count = shmem_n_pes();
  NEED(count == 2);
  const int other = 1 - self;
  auto* const inbox = static_cast<char*>(shmem_malloc(most_bytes));
  auto* const source = static_cast<char*>(shmem_malloc(most_bytes));
  auto* const counter = static_cast<long*>(shmem_malloc(sizeof(long)));
  NEED(inbox && source && counter);
  *counter = 0;
  for (std::size_t at = 0; at < most_bytes; ++at) source[at] = pattern(self, at);
  for (const std::size_t size : sizes) {
    std::memset(inbox, 0, most_bytes);
    shmem_barrier_all();
    shmem_putmem(inbox, source, size, other);
    shmem_barrier_all();
    for (std::size_t at = 0; at < size; ++at) NEED(inbox[at] == pattern(other, at));
    shmem_barrier_all();
    shmem_getmem(inbox, source, size, other);
    for (std::size_t at = 0; at < size; ++at) NEED(inbox[at] == pattern(other, at));
  }
  shmem_barrier_all();
  for (long number = 0; number < increments; ++number) shmem_long_atomic_add(counter, 1, 0);
  shmem_barrier_all();
  NEED(shmem_long_atomic_fetch(counter, 0) == 2 * increments);
  shmem_barrier_all();
  const long found = shmem_long_atomic_compare_swap(counter, 2 * increments, 7, 0);
  NEED(found == 2 * increments || found == 7);
  shmem_barrier_all();
  std::printf("process %d of %d, pid %d: all data is right\n", self, count, getpid());
  std::fflush(stdout);
  while (true) pause();
}
