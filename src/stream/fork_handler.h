// What the objects of streams do in a child of fork(2), where only the thread exists that has
// forked: another thread of the parent may have held any lock at that moment, or have waited for
// something, and does neither in the child.
#pragma once

#include <atomic>

namespace weft::stream::detail {

// Calls a function of its owner in each child, before fork(2) returns there. The function must take
// no lock. The owner declares it last, so that it is called only while all other members exist.
// Thread-safe.
//
// No lock is held across fork(2): handlers of other libraries wait there for threads that may be
// making or destroying such an object. So the list can be walked at any moment.
class ForkHandler {
 public:
  using Function = void(void* owner) noexcept;

  ForkHandler(void* owner, Function* in_child);
  ~ForkHandler();
  ForkHandler(const ForkHandler&) = delete;
  ForkHandler& operator=(const ForkHandler&) = delete;

 private:
  static void call_in_child();

  void* const owner_;
  Function* const in_child_;
  std::atomic<ForkHandler*> next_{nullptr};
  ForkHandler* previous_ = nullptr;
};

}  // namespace weft::stream::detail
