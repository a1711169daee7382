#include "interpose/accept_thread.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "base/fork_mark.h"
#include "interpose/accept_queue.h"
#include "interpose/process.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// The kernel does not report that another process has accepted a client, so check now and then.
constexpr std::chrono::milliseconds recheck_interval{50};
// In the tokens of what reports requests. ArrivingClients and KernelOffers have bits of their own.
constexpr std::uint64_t requests_bit = std::uint64_t{1} << 62;

constinit std::mutex making;
constinit AcceptThread* accept_thread = nullptr;
constinit std::atomic<std::uint64_t> owner{0};  // its fork_mark()
// Between the handlers of fork(2); null if the process does not listen.
constinit AcceptThread* forking = nullptr;
constinit thread_local bool in_accept_thread = false;

}  // namespace

// A child of fork(2) has none of its parent's threads, so it makes an object of its own when it
// first listens.
AcceptThread& AcceptThread::instance() {
  const std::lock_guard lock(making);
  if (!accept_thread || owner != fork_mark()) {
    accept_thread = new AcceptThread();  // never deleted: its thread runs to the very end
    start_thread([made = accept_thread] { made->run(); });
    owner = fork_mark();
  }
  return *accept_thread;
}

std::vector<std::shared_ptr<AcceptQueue>> all_accept_queues() {
  if (owner != fork_mark()) return {};
  return AcceptThread::instance().all();
}

// The locks are held across fork(2), so that the child's copies are in a consistent state. Both
// processes release them afterwards.
void accept_thread_before_fork() {
  making.lock();
  forking = owner == fork_mark() ? accept_thread : nullptr;
  if (forking) {
    forking->arriving().before_fork();
    forking->offers().before_fork();
  }
}

void accept_thread_after_fork_in_parent() {
  if (forking) {
    forking->arriving().after_fork_in_parent();
    forking->offers().after_fork_in_parent();
  }
  making.unlock();
}

void accept_thread_after_fork_in_child() {
  if (forking) {
    forking->arriving().after_fork_in_child();
    forking->offers().after_fork_in_child();
  }
  making.unlock();
}

AcceptThread::AcceptThread() : arriving_(epoll_), offers_(epoll_) {
  const bool works = epoll_.valid() && wake_.valid() && epoll_.add(wake_.get(), EPOLLIN, 0) == 0;
  if (!works) throw Error(EMFILE, "no descriptor left to listen with");
}

// Registered without events: watch() asks for them one by one.
std::uint64_t AcceptThread::add(int kernel, std::weak_ptr<AcceptQueue> queue) {
  const std::lock_guard lock(mutex_);
  queues_.emplace(++last_cookie_, std::move(queue));
  if (const int failed = epoll_.add(kernel, 0, last_cookie_); failed != 0) {
    queues_.erase(last_cookie_);
    throw Error(-failed, "cannot wait for connections");
  }
  wake_.signal();  // run() has to check the new queue from time to time at first
  return last_cookie_;
}

void AcceptThread::watch(int kernel, std::uint64_t cookie) {
  epoll_.change(kernel, EPOLLIN | EPOLLONESHOT, cookie);
}

void AcceptThread::unwatch(int kernel, std::uint64_t cookie) {
  epoll_.change(kernel, 0, cookie);
  if (!in_accept_thread) wake_.signal();  // run() has to know that it must check
}

void AcceptThread::remove(int kernel, std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  epoll_.remove(kernel);
  queues_.erase(cookie);
}

void AcceptThread::add_requests(int requests, std::uint64_t cookie) {
  epoll_.add(requests, EPOLLIN | EPOLLONESHOT, cookie | requests_bit);
}

void AcceptThread::watch_requests(int requests, std::uint64_t cookie) {
  epoll_.change(requests, EPOLLIN | EPOLLONESHOT, cookie | requests_bit);
}

void AcceptThread::remove_requests(int requests) {
  epoll_.remove(requests);
}

void AcceptThread::await_first_bytes(Descriptor connection,
                                     const std::shared_ptr<AcceptQueue>& queue, bool deferred) {
  arriving_.add(std::move(connection), queue, deferred);
  if (!in_accept_thread) wake_.signal();  // run() has to know its deadline
}

std::vector<std::shared_ptr<AcceptQueue>> AcceptThread::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<AcceptQueue>> found;
  for (const auto& [cookie, known] : queues_) {
    if (auto queue = known.lock()) found.push_back(std::move(queue));
  }
  return found;
}

std::shared_ptr<AcceptQueue> AcceptThread::find(std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(cookie);
  return found == queues_.end() ? nullptr : found->second.lock();
}

void AcceptThread::handle(const epoll_event& event) {
  const std::uint64_t token = event.data.u64;
  if (token == 0) {
    wake_.drain();
  } else if (token & ArrivingClients::token_bit) {
    arriving_.on_ready(token, event.events);
  } else if (token & KernelOffers::token_bit) {
    offers_.on_client(token & ~KernelOffers::token_bit);
  } else if (const auto queue = find(token & ~requests_bit)) {
    token& requests_bit ? queue->on_requests() : queue->on_client_waiting();
  }
}

// Sleeps without limit while no client is to be decided about, and no queue to be checked again.
void AcceptThread::run() {
  in_accept_thread = true;
  constexpr auto never = Clock::time_point::max();
  std::array<epoll_event, 16> room{};
  auto next_check = never;
  while (true) {
    const auto until = std::min(next_check, arriving_.next_deadline());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    const int timeout_ms = until == never ? -1 : static_cast<int>(std::max<long>(left, 0));
    for (const epoll_event& event : epoll_.wait(room, timeout_ms)) handle(event);
    const auto now = Clock::now();
    arriving_.check_deadlines(now);
    const bool timer_expired = now >= next_check;
    bool some_wait = offers_.recheck(timer_expired);
    for (const auto& queue : all()) {
      if (queue->recheck(timer_expired)) some_wait = true;
    }
    if (!some_wait) next_check = never;
    if (some_wait && (timer_expired || next_check == never)) next_check = now + recheck_interval;
  }
}

}  // namespace weft::interpose
