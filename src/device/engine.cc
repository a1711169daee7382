#include "device/engine.h"

#include <signal.h>

#include <array>
#include <chrono>

namespace weft::device {
namespace {

constexpr std::size_t batch = 64;
constexpr std::uint64_t wake_token = 0;
constexpr auto shortest_stand_by = std::chrono::microseconds(100);
constexpr auto longest_stand_by = std::chrono::microseconds(1000);
// A program that polls now and then, and watches memory in between, needs the thread at once.
constexpr std::uint64_t eager_ns = 20'000'000;

std::uint64_t token_of(std::size_t index, std::uint32_t generation) {
  return std::uint64_t{generation} << 32 | index;
}

std::size_t index_of(std::uint64_t token) { return token & 0xFFFFFFFF; }

std::uint32_t generation_of(std::uint64_t token) { return static_cast<std::uint32_t>(token >> 32); }

}  // namespace

Engine::Engine(ProgressMode mode)
    : mode_(mode), epoll_(sys::epoll_create()), wake_(sys::event_fd(false)) {
  sys::set_nonblocking(wake_.get());
  sys::epoll_control(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN, wake_token);
}

Engine::~Engine() {
  if (abandoned_) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  stopping_ = true;
  expect_sleep();
  wake();
  if (thread_.joinable()) thread_.join();
}

void Engine::wake() {
  const std::uint64_t one = 1;
  sys::write(wake_.get(), &one, sizeof one);
}

// With mutex_ held: a process that never opens a connection pays for no thread.
void Engine::start_thread() {
  if (mode_ == ProgressMode::manual || thread_.joinable()) return;
  // Signals are the application's: none may be delivered here.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "weft-progress");
}

std::uint64_t Engine::watch(int fd, std::uint32_t events, std::shared_ptr<Pollable> target) {
  const std::lock_guard lock(mutex_);
  std::size_t index = slots_.size();
  if (free_slots_.empty()) {
    slots_.emplace_back();
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  Slot& slot = slots_[index];
  const std::uint64_t token = token_of(index, slot.generation);
  if (sys::epoll_control(epoll_.get(), EPOLL_CTL_ADD, fd, events, token) < 0) {
    free_slots_.push_back(static_cast<std::uint32_t>(index));
    return 0;
  }
  slot.target = std::move(target);
  slot.fd = fd;
  start_thread();
  return token;
}

void Engine::change(std::uint64_t token, std::uint32_t events) {
  const std::lock_guard lock(mutex_);
  const std::size_t index = index_of(token);
  if (index >= slots_.size() || slots_[index].generation != generation_of(token)) return;
  sys::epoll_control(epoll_.get(), EPOLL_CTL_MOD, slots_[index].fd, events, token);
}

void Engine::unwatch(std::uint64_t token) {
  std::shared_ptr<Pollable> released;  // its destructor must not run under the lock
  const std::lock_guard lock(mutex_);
  const std::size_t index = index_of(token);
  if (index >= slots_.size() || slots_[index].generation != generation_of(token)) return;
  Slot& slot = slots_[index];
  if (!abandoned_) sys::epoll_control(epoll_.get(), EPOLL_CTL_DEL, slot.fd, 0, 0);
  released = std::move(slot.target);
  slot.fd = -1;
  ++slot.generation;
  free_slots_.push_back(static_cast<std::uint32_t>(index));
}

std::shared_ptr<Pollable> Engine::find(std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  const std::size_t index = index_of(token);
  if (index >= slots_.size() || slots_[index].generation != generation_of(token)) return nullptr;
  return slots_[index].target;
}

void Engine::call_at(std::uint64_t deadline_ns, const std::shared_ptr<Pollable>& target) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    const auto added = deadlines_.emplace(deadline_ns, target);
    first = added == deadlines_.begin();
    start_thread();
  }
  if (first) wake();
}

// Returns how long epoll may wait for the next one, in milliseconds; -1 where there is none.
int Engine::run_deadlines() {
  while (true) {
    std::shared_ptr<Pollable> due;
    {
      const std::lock_guard lock(mutex_);
      if (deadlines_.empty()) return -1;
      const std::uint64_t now = sys::now_ns();
      const auto first = deadlines_.begin();
      if (first->first > now) {
        return static_cast<int>(std::min<std::uint64_t>((first->first - now) / 1'000'000 + 1, 60000));
      }
      due = first->second.lock();
      deadlines_.erase(first);
    }
    if (due) due->on_deadline();
  }
}

void Engine::dispatch(std::span<const epoll_event> events) {
  for (const auto& event : events) {
    if (event.data.u64 == wake_token) {
      std::uint64_t count = 0;
      sys::read(wake_.get(), &count, sizeof count);
      continue;
    }
    if (const auto target = find(event.data.u64)) target->on_ready(event.events);
  }
}

void Engine::poll() {
  if (abandoned_) return;
  std::array<epoll_event, batch> events;
  const int ready = sys::epoll_wait(epoll_.get(), events, 0);
  if (ready > 0) dispatch({events.data(), static_cast<std::size_t>(ready)});
  if (mode_ == ProgressMode::manual) run_deadlines();
}

void Engine::expect_sleep() {
  if (mode_ == ProgressMode::manual) return;
  {
    const std::lock_guard lock(stand_by_mutex_);
    sleep_expected_ = true;
  }
  stand_by_.notify_one();
}

void Engine::run() {
  std::array<epoll_event, batch> events;
  std::uint64_t seen_polls = inline_polls_.load(std::memory_order_relaxed);
  std::uint64_t eager_until_ns = 0;
  while (!stopping_) {
    const int timeout_ms = run_deadlines();
    const int ready = sys::epoll_wait(epoll_.get(), events, timeout_ms);
    if (stopping_) return;
    if (ready <= 0) continue;
    const std::uint64_t polls = inline_polls_.load(std::memory_order_relaxed);
    const bool somebody_polls = polls != seen_polls;
    seen_polls = polls;
    if (somebody_polls && mode_ == ProgressMode::automatic && sys::now_ns() >= eager_until_ns) {
      stand_by();
      seen_polls = inline_polls_.load(std::memory_order_relaxed);
      // What was ready may have been handled meanwhile: ask again, without waiting.
      const int left = sys::epoll_wait(epoll_.get(), events, 0);
      if (left > 0) {
        eager_until_ns = sys::now_ns() + eager_ns;
        dispatch({events.data(), static_cast<std::size_t>(left)});
      }
      continue;
    }
    dispatch({events.data(), static_cast<std::size_t>(ready)});
  }
}

// Returns when polling pauses for one tick, or somebody is about to sleep.
void Engine::stand_by() {
  auto tick = shortest_stand_by;
  std::uint64_t polls = inline_polls_.load(std::memory_order_relaxed);
  std::unique_lock lock(stand_by_mutex_);
  while (!sleep_expected_ && !stopping_) {
    stand_by_.wait_for(lock, tick);
    const std::uint64_t now = inline_polls_.load(std::memory_order_relaxed);
    if (now == polls) break;
    polls = now;
    lock.unlock();
    run_deadlines();
    lock.lock();
    tick = std::min(tick * 2, longest_stand_by);
  }
  sleep_expected_ = false;
}

void Engine::abandon_after_fork() {
  abandoned_ = true;
  for (auto& slot : slots_) {
    if (slot.fd >= 0) sys::close(slot.fd);
    slot.fd = -1;
  }
  epoll_.reset();
  wake_.reset();
}

}  // namespace weft::device
