// One epoll for all descriptors of a device, served by the progress thread, by application threads
// that poll, or by one that waits. Which of them does it is decided here, with the aim that a busy
// application never pays for a hand-over between threads.
#include "device/engine.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace weft::device {
namespace {

// Events that are fetched by one epoll_wait().
constexpr std::size_t batch = 64;
// Deadlines that run before the descriptors have their turn again: ten thousand queue pairs that
// connect at once would otherwise all dial before the first of them makes its request, and a
// listener takes so many silent connections for an attack.
constexpr int deadlines_at_once = 32;
// Those of a poll, which a program expects to be brief.
constexpr int deadlines_of_a_poll = 4;
constexpr std::uint64_t wake_token = 0;
// How long the progress thread keeps away at first from descriptors that an application thread
// serves. It grows while that continues: see longest_tick().
constexpr std::chrono::microseconds shortest_stand_by{100};
// After a longer pause the program begins anew.
constexpr std::uint64_t longest_pause_ns = 1'000'000;
// A program that polls now and then, and watches memory in between, needs the progress thread
// without delay. How long that is assumed after it was seen.
constexpr std::uint64_t eager_ns = 20'000'000;
// How long the progress thread looks for more bulk data. The next part of it is there within some
// 15 us; to wake the thread takes 20 and more, and takes the sender's time as well.
constexpr std::uint64_t longer_look_ns = 50'000;

bool contains(std::span<Pollable* const> targets, const Pollable* wanted) {
  return std::find(targets.begin(), targets.end(), wanted) != targets.end();
}

// How long epoll_wait(2) may wait for a deadline. Rounded up, so that the thread does not spin
// through the last millisecond.
int timeout_ms(std::optional<std::uint64_t> deadline_ns) {
  if (!deadline_ns) return -1;
  const std::uint64_t now_ns = sys::now_ns();
  if (*deadline_ns <= now_ns) return 0;
  return static_cast<int>(std::min<std::uint64_t>((*deadline_ns - now_ns) / 1'000'000 + 1, 60000));
}

std::shared_ptr<SimulatedKernel> simulation_of_thread() {
  SimulatedKernel* kernel = SimulatedKernel::current();
  return kernel ? kernel->shared_from_this() : nullptr;
}

}  // namespace

// In a simulation nothing needs a descriptor of the kernel, and no thread comes.
Engine::Engine(ProgressMode mode, ProgressThread thread)
    : simulation_(simulation_of_thread()),
      mode_(simulation_ ? ProgressMode::manual : mode),
      kind_(thread) {
  if (simulation_) {
    watcher_ = simulation_->add(*this);
    epoll_.close();
    wake_.close();
    return;
  }
  epoll_.add(wake_.get(), EPOLLIN, wake_token);
}

Engine::~Engine() {
  if (simulation_) {
    simulation_->remove(watcher_);
    return;
  }
  // After fork() the thread does not exist in this process, so it cannot be joined.
  if (abandoned_) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  stopping_ = true;
  wait_leader_.stop();
  expect_sleep();
  wake_.signal();
  // The thread may be in a stand-by or in epoll_wait(); both were ended above.
  if (thread_.joinable()) thread_.join();
}

std::uint64_t Engine::watch(int fd, std::uint32_t events, std::shared_ptr<Pollable> target) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t token = add(fd, events, std::move(target));
  if (token != 0) start_thread();
  return token;
}

std::uint64_t Engine::watch_idly(int fd, std::uint32_t events, std::shared_ptr<Pollable> target) {
  const std::lock_guard lock(mutex_);
  return add(fd, events, std::move(target));
}

// With mutex_ held: the first event finds its target.
std::uint64_t Engine::add(int fd, std::uint32_t events, std::shared_ptr<Pollable> target) {
  std::size_t index = slots_.size();
  if (free_slots_.empty()) {
    slots_.grow();
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  Slot& slot = slots_[index];
  const std::uint64_t token = token_of(index, slot.generation);
  if (add(fd, events, token) < 0) {
    free_slots_.push_back(static_cast<std::uint32_t>(index));
    return 0;
  }
  slot.target = std::move(target);
  slot.fd = fd;
  slot.events = events;
  slot.left = false;
  note_change();
  return token;
}

int Engine::add(int fd, std::uint32_t events, std::uint64_t token) {
  if (simulation_) [[unlikely]]
    return simulation_->watch(watcher_, fd, events, token);
  return epoll_.add(fd, events, token);
}

void Engine::change(std::uint64_t token, std::uint32_t events) {
  const std::lock_guard lock(mutex_);
  const std::size_t index = index_of(token);
  if (index >= slots_.size() || slots_[index].generation != generation_of(token)) return;
  if (simulation_) [[unlikely]] {
    simulation_->change(slots_[index].fd, events);
    return;
  }
  Slot& slot = slots_[index];
  slot.events = events;
  if (slot.left) {
    std::erase(left_.tokens, token);
    if (!add_again(slot, token)) left_.tokens.push_back(token);
  } else {
    epoll_.change(slot.fd, events, token);
  }
  note_change();
}

void Engine::unwatch(std::uint64_t token) {
  std::shared_ptr<Pollable> released;  // its destructor must not run under the lock
  const std::lock_guard lock(mutex_);
  const std::size_t index = index_of(token);
  if (index >= slots_.size() || slots_[index].generation != generation_of(token)) return;
  Slot& slot = slots_[index];
  if (simulation_) [[unlikely]] {
    simulation_->unwatch(slot.fd);
  } else if (!abandoned_ && !slot.left) {
    epoll_.remove(slot.fd);
  }
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

// Prefetches the target of the event behind `current`. The memory arrives while `current` is
// handled.
void Engine::prefetch_next(std::span<const epoll_event> events, const epoll_event& current) {
  const epoll_event* const next = &current + 1;
  if (next == events.data() + events.size()) return;
  const std::lock_guard lock(mutex_);
  const std::size_t index = index_of(next->data.u64);
  if (index < slots_.size() && slots_[index].target) slots_[index].target->prefetch();
}

void Engine::call_at(std::uint64_t deadline_ns, const std::shared_ptr<Pollable>& target) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = deadlines_.add(deadline_ns, target);
    start_thread();
  }
  if (simulation_) [[unlikely]]
    return simulation_->set_deadline(watcher_, deadline_ns);
  // Only an earlier deadline than all others changes how long the thread may sleep.
  if (first) wake_.signal();
}

void Engine::call_idly_at(std::uint64_t deadline_ns, const std::shared_ptr<Pollable>& target) {
  const std::lock_guard lock(mutex_);
  const bool first = deadlines_.add(deadline_ns, target);
  if (first && thread_.joinable()) wake_.signal();
}

// Runs what is due, but not more than `most`. Returns the next deadline; nothing if there is none.
std::optional<WaitLoop::Time> Engine::run_deadlines(int most) {
  for (int run = 0;; ++run) {
    std::shared_ptr<Pollable> due;
    {
      const std::lock_guard lock(mutex_);
      const auto first = deadlines_.first();
      if (!first) return std::nullopt;
      if (run == most || *first > sys::now_ns()) return first;
      // Without the lock while it runs: it may add deadlines itself.
      due = deadlines_.take_first();
    }
    if (due) due->on_deadline();
  }
}

// The reference is kept during the call: another thread may unwatch the target meanwhile.
void Engine::dispatch(const epoll_event& event, void (*handle)(Pollable&, std::uint32_t)) {
  if (const auto target = find(event.data.u64)) handle(*target, event.events);
}

void Engine::dispatch_simulated(std::uint64_t token, std::uint32_t events) {
  const epoll_event event{.events = events, .data = {.u64 = token}};
  dispatch(event, [](Pollable& target, std::uint32_t what) { target.on_ready(what); });
}

void Engine::run_simulated_deadlines() {
  auto next = run_deadlines(deadlines_at_once);
  while (next && *next <= sys::now_ns()) next = run_deadlines(deadlines_at_once);
}

// Deadlines of targets that were destroyed are forgotten, so that they do not move the clock.
bool Engine::has_deadline_by(std::uint64_t until_ns) {
  const std::lock_guard lock(mutex_);
  const auto first = deadlines_.first_alive();
  return first && *first <= until_ns;
}

// What the caller drives itself is left to its next poll, which may find something to send with it.
bool Engine::poll(std::span<Pollable* const> driven) {
  if (abandoned_) return false;
  if (simulation_) [[unlikely]] {
    simulation_->polled();
    return false;
  }
  polled_.store(true, std::memory_order_relaxed);
  std::array<epoll_event, batch> events;
  const bool alone = mode_ == ProgressMode::manual;
  bool found = false;
  const auto ready = epoll_.wait(events, 0);
  for (const auto& event : ready) {
    prefetch_next(ready, event);
    if (event.data.u64 == wake_token) {
      // The wake-up is for the progress thread, which could miss a deadline without it.
      if (alone) wake_.drain();
      continue;
    }
    // Null where it was unwatched after this batch was fetched.
    const auto target = find(event.data.u64);
    if (!target) continue;
    // The progress thread sees by it that this target is being served.
    const Pollable::Attention attention(*target);
    if (contains(driven, target.get())) {
      target->on_ready_between_polls(event.events);
    } else {
      target->on_ready(event.events);
      found = true;
    }
  }
  if (alone && deferred_ > 0) {
    run_deferred_if(
        [&](const Deferred&, const Pollable* target) { return !contains(driven, target); });
  }
  // While a program polls, the progress thread looks at deadlines once in a tick only, and would
  // have to take the processor away from the program for them.
  const std::uint64_t now_ns = sys::now_ns();
  if (deadlines_.may_be_due(now_ns)) run_deadlines(deadlines_of_a_poll);
  // Not after a thread has waited: that wants the progress thread aside, not to stand by.
  if (steady_polling() != 0 && alarm_.put_off(now_ns)) end_tick();
  return found;
}

int Engine::wait(std::span<pollfd> entries, std::optional<std::uint64_t> until_ns,
                 const sigset_t* mask) {
  // There poll() carries out what happens meanwhile.
  if (simulation_) [[unlikely]]
    return sys::poll(entries, until_ns, mask);
  const bool sleeps = !until_ns || *until_ns > sys::now_ns();
  // A look without waiting brings no progress: polling a completion queue does. Without a progress
  // thread, such looks may be all that a program does until it has a queue pair.
  if (!sleeps && mode_ == ProgressMode::manual) poll();
  if (!sleeps || mode_ == ProgressMode::thread || abandoned_) {
    return sys::poll(entries, until_ns, mask);
  }
  const WaitLeader::Waiter waiter(wait_leader_);
  end_steady_polling();
  // One waiting thread at a time serves the descriptors in place of the progress thread, which
  // saves waking two threads for one event.
  if (waiter.leads() || mode_ == ProgressMode::manual) {
    return run_wait_loop(*this, entries, until_ns, mask);
  }
  return sys::poll(entries, until_ns, mask);
}

// The progress thread ends its stand-by for a thread that waits, but not at once.
void Engine::end_steady_polling() {
  if (steady_polling() == 0) return;
  set_steady_polling(false);
  watch_again(true);
}

std::optional<WaitLoop::Time> Engine::run_timers() {
  if (deferred_ > 0) run_deferred();  // this thread sleeps now, so the next call may be far away
  return run_deadlines(deadlines_at_once);
}

int Engine::sleep(std::span<pollfd> entries, std::optional<Time> until, const sigset_t* mask) {
  return sys::poll(entries, until, mask);
}

// A wake-up means that there is an earlier deadline. The progress thread must not miss it, so other
// threads consume it only once that thread is aside.
void Engine::dispatch_ready() {
  std::array<epoll_event, batch> events;
  for (const auto& event : epoll_.wait(events, 0)) {
    if (event.data.u64 != wake_token) {
      dispatch(event, [](Pollable& target, std::uint32_t what) { target.on_ready_in_wait(what); });
    } else if (mode_ == ProgressMode::manual || wait_leader_.is_thread_aside()) {
      wake_.drain();
    } else {
      sys::yield();
    }
  }
}

void Engine::expect_sleep() {
  // There is no thread that could leave something undone.
  if (mode_ == ProgressMode::manual) return;
  alarm_.set();
}

void Engine::serve() {
  std::array<epoll_event, batch> events;
  auto tick = shortest_stand_by;
  // The application has served the descriptors between these times.
  Time since_ns = 0;
  Time until_ns = 0;
  bool all = mode_ == ProgressMode::thread;
  while (!stopping_) {
    const auto deadline_ns = run_deadlines(deadlines_at_once);
    if (kind_.exact) [[unlikely]]
      wait_exactly(deadline_ns);
    if (left_.refused) [[unlikely]]
      watch_again(true);
    // What the kernel refuses to watch is tried again.
    const int longest_ms = left_.refused ? 1 : timeout_ms(deadline_ns);
    const auto ready = await_events(events, kind_.exact ? 0 : longest_ms);
    if (stopping_) return;
    // An application thread serves the descriptors already; two threads would wake up for each
    // event.
    if (wait_leader_.has_leader()) {
      wait_leader_.stand_aside();
      if (deferred_ > 0) run_deferred();
      // The leader may have taken its wake-up. A program that still wants it asks again.
      (void)asked_aside_.take();
      continue;
    }
    const bool left_some = dispatch_unattended(ready, all);
    // Behind the dispatch, which takes the wake-up of a request that comes meanwhile: with a
    // request that is made and not taken, no program could ask again.
    const bool asked = asked_aside_.take();
    if (ready.empty() && !asked) continue;
    const bool left = left_some || asked;
    if (mode_ == ProgressMode::thread) continue;
    // Something was left to a polling application. If that is about to sleep instead, the next turn
    // serves everything.
    if (!left) {
      all = false;
      until_ns = 0;
      tick = shortest_stand_by;
      continue;
    }
    if (const Time now_ns = sys::now_ns(); now_ns - until_ns > longest_pause_ns) since_ns = now_ns;
    all = stand_by(tick);
    until_ns = sys::now_ns();
    // The longest tick bounds how late the thread notices that the application has stopped polling.
    tick = std::min(tick * 2, longest_tick(until_ns - since_ns));
  }
}

// Each look leaves the processor to other threads that want it.
std::span<const epoll_event> Engine::await_events(std::span<epoll_event> events, int longest_ms) {
  if (bulk_.more_expected.load(std::memory_order_relaxed) && longest_ms != 0) {
    bulk_.more_expected = false;
    const std::uint64_t end_ns = sys::now_ns() + longer_look_ns;
    while (!stopping_ && sys::now_ns() < end_ns) {
      if (const auto ready = epoll_.wait(events, 0); !ready.empty()) return ready;
      sys::yield();
    }
  }
  return epoll_.wait(events, longest_ms);
}

// epoll_wait(2) counts in milliseconds, ppoll(2) in nanoseconds.
void Engine::wait_exactly(std::optional<Time> deadline_ns) const {
  pollfd entry{.fd = epoll_.get(), .events = POLLIN, .revents = 0};
  (void)sys::poll({&entry, 1}, deadline_ns, nullptr);
}

bool Engine::dispatch_unattended(std::span<const epoll_event> events, bool all) {
  bool left = false;
  for (const auto& event : events) {
    prefetch_next(events, event);
    if (event.data.u64 == wake_token) {
      wake_.drain();
      continue;
    }
    // Null where it was unwatched after this batch was fetched.
    const auto target = find(event.data.u64);
    if (!target) continue;
    if (!all && leave_to_application(*target)) {
      left = true;
    } else {
      target->on_ready(event.events);
    }
  }
  return left;
}

bool Engine::leave_to_application(Pollable& target) {
  // Reset in any case, so that the next check sees only what happens from here on.
  const bool since = target.attended_.exchange(false, std::memory_order_relaxed);
  const bool attended = since || target.attending_.load(std::memory_order_relaxed);
  // Left once and not attended since: the program does not poll as steadily as it seemed, so the
  // thread serves it at once for a while.
  const bool was_left = std::exchange(target.left_, attended);
  if (attended) return sys::now_ns() >= target.eager_until_ns_;
  if (was_left) target.eager_until_ns_ = sys::now_ns() + eager_ns;
  return false;
}

// Waits until no application thread has polled for a tick: while one does, it serves all
// descriptors (CompletionQueue::drive()), and a look at epoll would only take the processor away
// from it. So the program prolongs the stand-by itself, after the first tick. Returns true if an
// application thread is about to sleep, so that nothing may be left to application threads.
bool Engine::stand_by(std::chrono::microseconds tick) {
  const std::uint64_t began_ns = sys::now_ns();
  // While this is set defer() may count on run_deferred() below.
  standing_by_ = true;
  auto reason = StandByAlarm::Reason::passed;
  bool polled = true;
  while (polled && !stopping_ && !wait_leader_.has_leader()) {
    polled_.store(false, std::memory_order_relaxed);
    reason = steady_polling() == 0 ? alarm_.sleep(tick) : alarm_.sleep_on(tick, began_ns);
    polled = reason == StandByAlarm::Reason::passed && polled_.load(std::memory_order_relaxed);
    if (polled) set_steady_polling(true);
    end_tick();
    run_deadlines(deadlines_at_once);
    tick = std::max(tick, longest_tick(sys::now_ns() - began_ns));
  }
  standing_by_ = false;
  set_steady_polling(false);
  watch_again(true);
  if (deferred_ > 0) run_deferred();
  asked_aside_.stood_by(began_ns, sys::now_ns());
  return reason == StandByAlarm::Reason::set;
}

// What was left and not polled in this tick is watched again, and what was deferred is done. Called
// by the progress thread, and for it by a program that has prolonged its stand-by.
void Engine::end_tick() {
  watch_again(false);
  if (deferred_ > 0) run_deferred_of_tick();
}

bool Engine::defer(const std::weak_ptr<Pollable>& target, bool waiting, std::uint32_t ticks) {
  const bool deferred = try_to_defer(target, waiting, ticks);
  // The next time, it will stand by.
  const bool may_ask = mode_ == ProgressMode::automatic && !waiting && !deferred;
  if (may_ask && asked_aside_.ask(sys::now_ns())) wake_.signal();
  return deferred;
}

bool Engine::try_to_defer(const std::weak_ptr<Pollable>& target, bool waiting,
                          std::uint32_t ticks) {
  // In a simulation calls cost nothing, and time passes although the program makes none.
  if (simulation_) [[unlikely]]
    return false;
  const std::lock_guard lock(deferred_mutex_);
  // Often one queue pair defers again and again, and is named already.
  const auto named = [&] {
    if (deferred_targets_.size() != 1) return false;
    const std::weak_ptr<Pollable>& only = deferred_targets_.front().target;
    return !only.owner_before(target) && !target.owner_before(only);
  };
  // Counted before the decision, so that a thread which is about to sleep sees that something may
  // be due.
  if (deferred_++ == 0 && !named()) deferred_targets_.clear();
  bool soon = standing_by_ || (wait_leader_.is_thread_aside() && !wait_leader_.has_leader());
  if (waiting) soon = wait_leader_.is_thread_aside();
  // Without a progress thread the program has promised to come back.
  if (mode_ == ProgressMode::manual) soon = true;
  if (!soon) {
    --deferred_;
  } else if (named()) {
    deferred_targets_.front().due = tick_ + ticks;
  } else {
    deferred_targets_.push_back({target, tick_ + ticks});
  }
  return soon;
}

// `due` is asked for each target with the mutex held.
template <typename Predicate>
void Engine::run_deferred_if(Predicate due) {
  // Destroyed without the mutex, as each may be the last reference.
  std::vector<std::shared_ptr<Pollable>> targets;
  std::vector<std::shared_ptr<Pollable>> left;
  {
    const std::lock_guard lock(deferred_mutex_);
    std::erase_if(deferred_targets_, [&](const Deferred& one) {
      auto target = one.target.lock();
      const bool is_due = !target || due(one, target.get());
      if (target) (is_due ? targets : left).push_back(std::move(target));
      return is_due;
    });
  }
  // Without the mutex: each call takes the lock of a queue pair.
  for (const auto& target : targets) target->on_deferred();
}

void Engine::run_deferred_of_tick() {
  std::uint64_t now = 0;
  {
    const std::lock_guard lock(deferred_mutex_);
    now = ++tick_;
  }
  run_deferred_if([now](const Deferred& one, const Pollable*) { return one.due <= now; });
}

void Engine::run_deferred() {
  run_deferred_if([](const Deferred&, const Pollable*) { return true; });
}

void Engine::abandon_after_fork() {
  abandoned_ = true;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    // close() and not epoll_ctl(): the epoll is shared with the parent, whose registrations must
    // stay.
    if (slots_[i].fd >= 0) sys::close(slots_[i].fd);
    slots_[i].fd = -1;
  }
  epoll_.close();
  wake_.close();
  alarm_.close();
}

}  // namespace weft::device
