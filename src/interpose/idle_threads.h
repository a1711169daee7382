// Threads for short work of connections, such as to close a stream. They are kept for the next work
// when they are done, because to create a thread costs more than most of that work.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>

namespace weft::interpose {

// Thread-safe. Never destroyed.
class IdleThreads {
 public:
  struct Work {
    void (*run)(void*) = nullptr;
    void* argument = nullptr;
  };

  // Runs the work in an idle thread, or in a new one if there is none. All signals are blocked
  // there: the program's handlers must run in threads of the program. Throws Error.
  void start(Work work);

 private:
  void create();
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> waiting_;  // at most as many as there are idle threads
  std::size_t idle_ = 0;
};

// The threads of this process.
[[nodiscard]] IdleThreads& idle_threads();
// In the child after fork(2): the threads of the parent do not exist there.
void forget_idle_threads();

}  // namespace weft::interpose
