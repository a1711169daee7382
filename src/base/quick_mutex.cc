#include "base/quick_mutex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace weft {
namespace {

// Calls of verbs that take a lock and succeed leave errno as it was.
void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
  const int kept = errno;
  ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
  errno = kept;
}

}  // namespace

// The kernel sleeps only while the word still says that the lock is awaited. A thread that was
// woken cannot know whether others sleep as well, so it takes the lock as one that is awaited; then
// the last of them makes one call too many.
void QuickMutex::wait() {
  while (state_.exchange(awaited, std::memory_order_acquire) != free) {
    futex(state_, FUTEX_WAIT_PRIVATE, awaited);
  }
}

// Another thread may have destroyed the object since it was given free. The kernel uses its address
// only as the name of a queue of sleepers, and a thread that is woken in vain looks again.
void QuickMutex::wake() {
  futex(state_, FUTEX_WAKE_PRIVATE, 1);
}

}  // namespace weft
