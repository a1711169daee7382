// Threads for short work of connections, such as to close a stream. They are kept for the next work
// when they are done, because to create a thread costs more than most of that work.
#pragma once

#include <mutex>
#include <vector>

namespace weft::interpose {

// Thread-safe. Never destroyed.
class IdleThreads {
 public:
  struct Work {
    void (*run)(void*) = nullptr;
    void* argument = nullptr;
  };

  IdleThreads();
  // Runs the work in an idle thread, or in a new one if there is none. All signals are blocked
  // there: the program's handlers must run in threads of the program. Throws Error.
  void start(Work work);

 private:
  struct Sleeper;

  void create(Work work);
  // Runs `work`, and what comes after it. Returns when enough other threads are idle.
  void run(Work work);

  std::mutex mutex_;
  // Each in a thread that has nothing to do, on the stack of that thread.
  std::vector<Sleeper*> idle_;
};

// The threads of this process.
[[nodiscard]] IdleThreads& idle_threads();
// In the child after fork(2): the threads of the parent do not exist there.
void forget_idle_threads();

}  // namespace weft::interpose
