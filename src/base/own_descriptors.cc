#include "base/own_descriptors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "base/descriptor_bits.h"
#include "base/system_call.h"

namespace weft::own_descriptors {

struct Account {
  DescriptorBits bits;
};

namespace {

constinit std::atomic<Account*> kept{nullptr};
constinit std::atomic<int> floor{0};

// By bare system calls: a library that replaces fcntl(2) and close(2) does not know the descriptor.
int duplicate(int fd, int from) {
  return static_cast<int>(system_call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, from));
}

}  // namespace

// madvise(2): the pages are zero in a child. An account of zero bytes is empty, and is not written
// here, so that only those pages take memory which have a descriptor of Weft's.
Account* make_account() {
  constexpr std::size_t bytes = sizeof(Account);
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  if (madvise(at, bytes, MADV_WIPEONFORK) == 0) return static_cast<Account*>(at);
  munmap(at, bytes);
  return nullptr;
}

void keep_account(Account* account, int first) {
  kept = account;
  floor = first;
}

void add(int fd) {
  if (Account* const account = kept.load(std::memory_order_relaxed)) account->bits.set(fd);
}

void remove(int fd) {
  if (Account* const account = kept.load(std::memory_order_relaxed)) account->bits.reset(fd);
}

int moved_high(int fd) {
  const int first = floor.load(std::memory_order_relaxed);
  if (fd < 0 || first == 0) return fd;
  const int high = duplicate(fd, first);
  if (high < 0) return fd;
  system_call(SYS_close, fd);
  return high;
}

int copy_high(int fd) {
  const int high = duplicate(fd, floor.load(std::memory_order_relaxed));
  return high >= 0 ? high : duplicate(fd, 0);
}

bool owns(int fd) {
  const Account* const account = kept.load(std::memory_order_relaxed);
  return account && account->bits.test(fd);
}

int first_in(unsigned first, unsigned last) {
  const Account* const account = kept.load(std::memory_order_relaxed);
  return account ? account->bits.first_in(first, last) : -1;
}

}  // namespace weft::own_descriptors
