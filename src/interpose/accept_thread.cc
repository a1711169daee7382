#include "interpose/accept_thread.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "interpose/accept_queue.h"
#include "interpose/process.h"
#include "weft/error.hpp"

namespace weft::interpose {
namespace {

// The kernel does not report that another process has accepted a client, so check now and then.
constexpr int recheck_ms = 50;

constinit std::mutex making;
constinit AcceptThread* accept_thread = nullptr;
constinit std::atomic<pid_t> owner{0};

}  // namespace

AcceptThread& AcceptThread::instance() {
  const std::lock_guard lock(making);
  if (!accept_thread || owner != getpid()) {
    accept_thread = new AcceptThread();  // never deleted: its thread runs to the very end
    start_thread([made = accept_thread] { made->run(); });
    owner = getpid();
  }
  return *accept_thread;
}

std::vector<std::shared_ptr<AcceptQueue>> all_accept_queues() {
  if (owner != getpid()) return {};
  return AcceptThread::instance().all();
}

AcceptThread::AcceptThread()
    : epoll_(weft::Descriptor(move_high(Descriptor(EpollSet::create())).release())) {
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

void AcceptThread::remove(int kernel, std::uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  epoll_.remove(kernel);
  queues_.erase(cookie);
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

// Sleeps without limit while no queue has to be checked again, else for recheck_ms.
void AcceptThread::run() {
  std::array<epoll_event, 16> room{};
  bool some_wait = false;
  while (true) {
    const auto events = epoll_.wait(room, some_wait ? recheck_ms : -1);
    for (const epoll_event& event : events) {
      if (event.data.u64 == 0) wake_.drain();
      if (const auto queue = find(event.data.u64)) queue->on_client_waiting();
    }
    some_wait = false;
    for (const auto& queue : all()) {
      if (queue->recheck(events.empty())) some_wait = true;
    }
  }
}

}  // namespace weft::interpose
