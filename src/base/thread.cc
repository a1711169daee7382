#include "base/thread.h"

#include <link.h>

#include <cerrno>
#include <cstddef>
#include <exception>
#include <system_error>

#include "base/blocked_signals.h"

namespace weft {
namespace {

// The largest frames have 64 KiB, and at most two of them are on a stack at once.
constexpr std::size_t small_stack_bytes = std::size_t{256} * 1024;
// The C library takes these from the stack as well: its guard page, its own data of the thread, and
// what it keeps for libraries that are loaded later.
constexpr std::size_t bytes_of_library = std::size_t{32} * 1024;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool may_be_small = false;  // frames are several times as large
#else
constexpr bool may_be_small = true;
#endif

int add_thread_local_bytes(dl_phdr_info* object, std::size_t, void* total) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    if (part.p_type == PT_TLS) *static_cast<std::size_t*>(total) += part.p_memsz + part.p_align;
  }
  return 0;
}

// The variables of a thread (thread_local) are on its stack. Most libraries that have any are
// loaded at the start, so they are counted once. dl_iterate_phdr(3) takes a lock, which a child of
// fork(2) may find taken: counting once also avoids that.
std::size_t thread_local_bytes() {
  static const std::size_t found = [] {
    std::size_t total = 0;
    dl_iterate_phdr(add_thread_local_bytes, &total);
    return total;
  }();
  return found;
}

class Attributes {
 public:
  Attributes() { pthread_attr_init(&value_); }
  ~Attributes() { pthread_attr_destroy(&value_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  // No more than the C library would give it, which is what the user has limited.
  void make_small() {
    const std::size_t wanted = small_stack_bytes + bytes_of_library + thread_local_bytes();
    std::size_t usual = 0;
    pthread_attr_getstacksize(&value_, &usual);
    if (wanted < usual) pthread_attr_setstacksize(&value_, wanted);
  }
  [[nodiscard]] const pthread_attr_t* get() const { return &value_; }

 private:
  pthread_attr_t value_{};
};

}  // namespace

// The usual stack is the second choice, where the C library counts thread_local variables that were
// not counted here.
void Thread::start(void* (*begin)(void*), void* argument, Stack stack) {
  Attributes attributes;
  if (may_be_small && stack == Stack::small) attributes.make_small();
  const BlockedSignals inherited;
  int failed = pthread_create(&thread_, attributes.get(), begin, argument);
  if (failed == EINVAL) failed = pthread_create(&thread_, nullptr, begin, argument);
  if (failed != 0) throw std::system_error(failed, std::generic_category(), "no thread");
  joinable_ = true;
}

Thread::~Thread() {
  if (joinable_) std::terminate();
}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (joinable_) std::terminate();
  thread_ = other.thread_;
  joinable_ = std::exchange(other.joinable_, false);
  return *this;
}

void Thread::join() {
  pthread_join(thread_, nullptr);
  joinable_ = false;
}

void Thread::detach() {
  pthread_detach(thread_);
  joinable_ = false;
}

}  // namespace weft
