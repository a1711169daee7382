#include "stream/fork_handler.h"

#include <pthread.h>

#include <memory>
#include <mutex>

namespace weft::stream::detail {
namespace {

constinit std::mutex list_mutex;
constinit std::atomic<ForkHandler*> first{nullptr};

}  // namespace

// call_in_child() may walk the list at any moment, so `first` names the new handler last.
ForkHandler::ForkHandler(void* owner, Function* in_child) : owner_(owner), in_child_(in_child) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, &call_in_child);
  const std::lock_guard lock(list_mutex);
  ForkHandler* const next = first;
  next_ = next;
  first = this;
  if (next) next->previous_ = this;
}

ForkHandler::~ForkHandler() {
  const std::lock_guard lock(list_mutex);
  ForkHandler* const next = next_;
  (previous_ ? previous_->next_ : first) = next;
  if (next) next->previous_ = previous_;
}

// Another thread may have been changing the list: then the ways back are not complete.
void ForkHandler::call_in_child() {
  ForkHandler* previous = nullptr;
  for (ForkHandler* one = first; one; one = one->next_) {
    one->previous_ = previous;
    previous = one;
    one->in_child_(one->owner_);
  }
  std::construct_at(&list_mutex);
}

}  // namespace weft::stream::detail
