#include "base/quick_mutex.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/pause.h"
#include "base/system_call.h"

namespace weft {
namespace {

// Calls of verbs that take a lock and succeed leave errno as it was.
template <typename... Arguments>
long call(long number, Arguments... arguments) {
  const int kept = errno;
  const long done = system_call(number, arguments...);
  errno = kept;
  return done;
}

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* longest = nullptr) {
  (void)call(SYS_futex, &word, operation, value, longest, nullptr, 0);
}

bool may_use_barriers() {
  return call(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

// Each thread of the process that runs makes a full barrier meanwhile; the others have made one
// since they ran. False where a sandbox refuses the call by now.
bool make_all_threads_barrier() {
  const auto attempt = [] {
    return call(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  };
  return attempt() || (may_use_barriers() && attempt());
}

// A lock of the data path is held for less than a microsecond, unless its holder loses the
// processor.
constexpr int looks_before_sleep = 64;

}  // namespace

constinit bool QuickMutex::stores_plainly_ = false;
constinit std::array<QuickMutex::Waiting, QuickMutex::counts> QuickMutex::waiting_{};

// Decided when the library is loaded, before a second thread can use a mutex. Registration is quick
// while there is one thread.
struct QuickMutexStart {
  QuickMutexStart() {
    QuickMutex::stores_plainly_ = may_use_barriers();
    // The threads that wait do not exist in the child.
    pthread_atfork(nullptr, nullptr, [] {
      for (auto& one : QuickMutex::waiting_) one.count.store(0, std::memory_order_relaxed);
    });
  }
};

namespace {
const QuickMutexStart start;
}  // namespace

void QuickMutex::wait() {
  for (int i = 0; i < looks_before_sleep; ++i) {
    if (state_.load(std::memory_order_relaxed) == free && try_lock()) return;
    pause_processor();
  }
  if (stores_plainly_) return wait_for_plain_store();
  // The kernel sleeps only while the word still says that the lock is awaited. A thread that was
  // woken cannot know whether others sleep as well, so it takes the lock as one that is awaited;
  // then the last of them makes one call too many.
  while (state_.exchange(awaited, std::memory_order_acquire) != free) {
    futex(state_, FUTEX_WAIT_PRIVATE, awaited);
  }
}

// Behind the barrier, each unlock() that is to come sees the count and wakes this thread, and what
// an earlier one has stored is visible here.
void QuickMutex::wait_for_plain_store() {
  std::atomic<std::uint32_t>& waiting = waiting_here();
  waiting.fetch_add(1, std::memory_order_seq_cst);
  // Without the barrier an unlock() that is under way may not see the count.
  constexpr timespec look_again{.tv_sec = 0, .tv_nsec = 1'000'000};
  const timespec* const longest = make_all_threads_barrier() ? nullptr : &look_again;
  while (!try_lock()) futex(state_, FUTEX_WAIT_PRIVATE, held, longest);
  waiting.fetch_sub(1, std::memory_order_relaxed);
}

void QuickMutex::unlock_atomically() {
  if (state_.exchange(free, std::memory_order_release) == awaited) [[unlikely]]
    wake();
}

// Another thread may have destroyed the object since it was given free. The kernel uses its address
// only as the name of a queue of sleepers, and a thread that is woken in vain looks again.
void QuickMutex::wake() {
  futex(state_, FUTEX_WAKE_PRIVATE, 1);
}

}  // namespace weft
