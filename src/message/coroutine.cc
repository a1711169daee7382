// The awaitable operations of event loops, connections and messages.
#include "weft/message/coroutine.hpp"

#include <deque>

#include "message/link.h"
#include "message/loop_core.h"
#include "message/waiter_list.h"
#include "weft/message/event_loop.hpp"

namespace weft::message {
namespace detail {

// --- Suspension ----------------------------------------------------------------------------------

Suspension::Suspension(std::weak_ptr<LoopCore> loop, Deadline deadline, std::stop_token stop)
    : loop_(std::move(loop)), deadline_(deadline), stop_(std::move(stop)) {}

Suspension::~Suspension() = default;

// Starts the timer of the deadline, and registers for the stop. If the loop is destroyed, neither
// of them can end the wait.
void Suspension::suspend(std::coroutine_handle<> waiting) {
  waiting_ = waiting;
  const auto loop = loop_.lock();
  if (!loop) return;
  if (const int ms = deadline_.poll_timeout_ms(); ms >= 0) {
    timer_ = loop->after(std::chrono::milliseconds(ms), [weak = weak_from_this()] {
      // Weak, because the coroutine may have been resumed or destroyed by the time the timer fires.
      if (const auto self = weak.lock()) self->resume(Woken::late);
    });
  }
  if (stop_.stop_possible()) callback_.emplace(stop_, Stop{this});
}

// Runs in the thread that requests the stop, so it posts the resumption to the loop's thread.
void Suspension::Stop::operator()() const noexcept {
  const auto loop = suspension->loop_.lock();
  if (!loop) return;
  loop->post([weak = suspension->weak_from_this()] {
    if (const auto self = weak.lock()) self->resume(Woken::stopped);
  });
}

// forget() comes first, because the coroutine may destroy this object's owner, or wait again.
void Suspension::resume(Woken why) {
  if (!waiting_) return;
  why_ = why;
  const auto waiting = waiting_;
  forget();
  waiting.resume();
}

void Suspension::forget() {
  waiting_ = nullptr;
  callback_.reset();
  const auto loop = timer_ ? loop_.lock() : nullptr;
  if (loop) loop->cancel(timer_);
  timer_ = 0;
}

}  // namespace detail

using detail::Suspension;
using detail::Wait;
using detail::Woken;

// std::function needs a copyable callable, so the task is shared.
void EventLoop::spawn(Task<> task) {
  auto shared = std::make_shared<Task<>>(std::move(task));
  core_->post([core = core_.get().get(), shared] { core->spawn(std::move(*shared)); });
}

Executor& EventLoop::executor() {
  return *core_;
}

// A wait without a condition: only the deadline or the stop ends it.
Wait<bool> EventLoop::sleep(Deadline deadline, std::stop_token stop) {
  auto suspension = std::make_shared<Suspension>(core_.get(), deadline, std::move(stop));
  return {std::move(suspension), [] { return false; }, [](const auto&, const auto&) {},
          [](Woken why) { return why != Woken::stopped; }};
}

// --- Sending and connections ---------------------------------------------------------------------

bool Sending::is_settled() const {
  const Status now = status();
  return now == Status::failed || now == Status::delivered ||
         (now == Status::sent && !record_->confirm);
}

// A handle without a record has failed, and is settled from the beginning.
Wait<Status> Sending::settled(Deadline deadline, std::stop_token stop) const {
  const auto link = record_ ? record_->link.lock() : nullptr;
  const Sending self = *this;
  return {
      link ? link->suspension(deadline, std::move(stop))
           : std::make_shared<Suspension>(std::weak_ptr<detail::LoopCore>(), deadline, stop),
      [self, link] { return !link || self.is_settled(); },
      [link](auto suspension, auto ready) { link->await(std::move(suspension), std::move(ready)); },
      [self](Woken) { return self.status(); }};
}

Wait<void> Connection::established(Deadline deadline, std::stop_token stop) const {
  const auto link = link_;
  return {
      this->link().suspension(deadline, std::move(stop)),
      [link] { return link->was_established() || link->state() == State::ended; },
      [link](auto suspension, auto ready) { link->await(std::move(suspension), std::move(ready)); },
      [link](Woken why) {
        if (link->was_established()) return;
        if (why == Woken::late) throw Error(ETIMEDOUT, "no connection before the deadline");
        if (why == Woken::stopped)
          throw Error(ECANCELED, "the wait for the connection was stopped");
        link->throw_error();
      }};
}

Wait<std::optional<Received>> Connection::receive(Deadline deadline, std::stop_token stop) const {
  const auto link = link_;
  return {
      this->link().suspension(deadline, std::move(stop)),
      [link] { return link->has_message() || link->state() == State::ended; },
      [link](auto suspension, auto ready) { link->await(std::move(suspension), std::move(ready)); },
      [link](Woken) { return link->receive(); }};
}

Wait<bool> Connection::until_writable(Deadline deadline, std::stop_token stop) const {
  const auto link = link_;
  return {
      this->link().suspension(deadline, std::move(stop)),
      [link] { return link->writable() || link->state() == State::ended; },
      [link](auto suspension, auto ready) { link->await(std::move(suspension), std::move(ready)); },
      [link](Woken) { return link->writable(); }};
}

// --- Accepting -----------------------------------------------------------------------------------

// Shared with the listener's handler, which may run while the Acceptor is destroyed.
struct Acceptor::Queue {
  std::deque<Request> requests;
  detail::WaiterList waiting;  // for a request each
};

Acceptor::Acceptor(EventLoop& loop, const Address& address, int backlog)
    : loop_(loop.core_.get()),
      queue_(std::make_shared<Queue>()),
      listener_(loop.listen(
          address,
          [queue = queue_](Request request) {
            queue->requests.push_back(std::move(request));
            queue->waiting.resume_ready();
          },
          backlog)) {}

Acceptor::~Acceptor() = default;

Wait<std::optional<Request>> Acceptor::next(Deadline deadline, std::stop_token stop) {
  const auto queue = queue_;
  return {std::make_shared<Suspension>(loop_, deadline, std::move(stop)),
          [queue] { return !queue->requests.empty(); },
          // Its condition must not keep the queue, which keeps the condition.
          [queue](auto suspension, const auto&) {
            queue->waiting.add(std::move(suspension),
                               [queue = queue.get()] { return !queue->requests.empty(); });
          },
          [queue](Woken) -> std::optional<Request> {
            if (queue->requests.empty()) return std::nullopt;
            std::optional<Request> first(std::move(queue->requests.front()));
            queue->requests.pop_front();
            return first;
          }};
}

}  // namespace weft::message
