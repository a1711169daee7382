// Threads of the library, which run inside the programs of others.
//
// The C library gives each thread as much stack as RLIMIT_STACK says, mostly 8 MiB. That counts
// towards RLIMIT_AS and RLIMIT_DATA, by which servers limit themselves, although none of it is
// used. So these threads get a small stack.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace weft {

// As std::thread: it must be joined or detached before it is destroyed. All signals but those of
// faults are blocked in the new thread (BlockedSignals).
class Thread {
 public:
  enum class Stack : std::uint8_t {
    small,       // for code of Weft alone
    of_program,  // for code that is not Weft's, such as getaddrinfo(3) with its modules
  };

  Thread() = default;
  // Calls `call` in a new thread. Throws std::system_error.
  template <typename Call>
  explicit Thread(Call call, Stack stack = Stack::small) {
    auto kept = std::make_unique<Call>(std::move(call));
    start(
        [](void* argument) -> void* {
          const std::unique_ptr<Call> owned(static_cast<Call*>(argument));
          run(*owned);
          return nullptr;
        },
        kept.get(), stack);
    (void)kept.release();  // the thread owns it
  }
  ~Thread();
  Thread(Thread&& other) noexcept : joinable_(std::exchange(other.joinable_, false)) {
    thread_ = other.thread_;
  }
  Thread& operator=(Thread&& other) noexcept;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  [[nodiscard]] bool joinable() const { return joinable_; }
  [[nodiscard]] pthread_t native_handle() const { return thread_; }
  // Waits for the end of the thread.
  void join();
  void detach();

 private:
  // An exception that leaves `call` ends the process, as with std::thread.
  template <typename Call>
  static void run(Call& call) noexcept {
    call();
  }
  void start(void* (*begin)(void*), void* argument, Stack stack);

  pthread_t thread_{};
  bool joinable_ = false;
};

}  // namespace weft
