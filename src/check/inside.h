// Whether the thread is in the checks, or in the device below them.
#pragma once

#include <mutex>

namespace weft::check {

// For a scope. What the thread frees in it is memory of Weft, and no memory of the program.
class Inside {
 public:
  Inside() { enter(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { leave(); }
  [[nodiscard]] static bool any() { return depth > 0; }
  static void enter() { ++depth; }
  static void leave() { --depth; }

 private:
  // Not allocated at its first use, which may be in free(3).
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local int depth = 0;
};

// A mutex whose owner is inside, so that free(3) does not take it again.
class InsideMutex {
 public:
  void lock() {
    Inside::enter();
    mutex_.lock();
  }
  [[nodiscard]] bool try_lock() {
    if (!mutex_.try_lock()) return false;
    Inside::enter();
    return true;
  }
  void unlock() {
    mutex_.unlock();
    Inside::leave();
  }

 private:
  std::mutex mutex_;
};

}  // namespace weft::check
