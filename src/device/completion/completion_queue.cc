#include "device/completion/completion_queue.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <memory>
#include <new>
#include <utility>

#include "base/kernel_clock.h"
#include "base/simulated_kernel.h"
#include "device/completion/unannounced.h"
#include "device/context.h"
#include "device/limits.h"
#include "device/trace/queue_pair_trace.h"

namespace weft::device {
namespace {

// Most queues never have many completions at a time, so the ring begins small and doubles by need.
constexpr std::size_t first_places = 2;

// Moves what the rings have to new ones, where it is at the beginning.
template <typename Note>
void move_rings(std::vector<Delivery>& ring, std::vector<Note>& notes, std::size_t head,
                std::size_t count, std::size_t places) {
  std::vector<Delivery> new_ring(places);
  std::vector<Note> new_notes(notes.empty() ? 0 : places);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t from = (head + i) % ring.size();
    new_ring[i] = ring[from];
    if (!notes.empty()) new_notes[i] = notes[from];
  }
  ring = std::move(new_ring);
  notes = std::move(new_notes);
}

// Makes place for one more completion in rings that are full. False: the queue is full as well, or
// there is no memory.
template <typename Note>
[[gnu::noinline, gnu::cold]] bool grow(std::vector<Delivery>& ring, std::vector<Note>& notes,
                                       std::size_t& head, std::size_t most_places) {
  if (ring.size() >= most_places) return false;
  try {
    move_rings(ring, notes, head, ring.size(),
               std::min(most_places, std::max(first_places, ring.size() * 2)));
  } catch (const std::bad_alloc&) {
    return false;
  }
  head = 0;
  return true;
}

}  // namespace

// Two readings: ibv_create_cq_ex(3) offers a raw clock, which query_real_time_values() relates to,
// and the wall clock.
CompletionStamp CompletionStamp::now() {
  if (SimulatedKernel* kernel = SimulatedKernel::current()) [[unlikely]]
    return {.raw_ns = kernel->now_ns(), .wallclock_ns = kernel->now_ns()};
  return {.raw_ns = kernel_clock_ns(CLOCK_MONOTONIC),
          .wallclock_ns = kernel_clock_ns(CLOCK_REALTIME)};
}

// A negative number of a caller is a large one here, which no adapter has.
bool CompletionQueue::holds(Device& device, std::uint64_t entries) {
  return entries >= 1 && device.adapter().grants(Capability::completions, entries);
}

CompletionQueue::CompletionQueue(Context& context, int entries, void* user_context,
                                 CompletionChannel* channel)
    : context_(context),
      counted_(context.device().adapter(), Capability::completion_queues),
      channel_(channel),
      ring_(std::min(static_cast<std::size_t>(entries), first_places)),
      notes_(context.device().trace() ? ring_.size() : 0) {
  cq_.context = context.verbs();
  cq_.channel = channel ? channel->verbs() : nullptr;
  cq_.cq_context = user_context;
  cq_.cqe = entries;
  pthread_mutex_init(&cq_.mutex, nullptr);
  pthread_cond_init(&cq_.cond, nullptr);
  if (channel) channel->add(*this);
  context.device().statistics_registry().add(*this);
}

// Withdraws pending events first, so that no reader gets an event of a destroyed queue, then waits
// for the acknowledgement of those already delivered (ibv_destroy_cq(3)).
CompletionQueue::~CompletionQueue() {
  // The engine may still hold the clock; from here on it calls nothing.
  if (clock_) clock_->stop();
  context_.device().statistics_registry().remove(*this);
  if (channel_) {
    channel_->events_.withdraw([this](CompletionQueue* queue) { return queue == this; });
    wait_for_acknowledgements();
    channel_->remove(*this);
  }
  pthread_cond_destroy(&cq_.cond);
  pthread_mutex_destroy(&cq_.mutex);
}

// Takes several completions under one lock.
int CompletionQueue::take(int entries, ibv_wc* completions) {
  const std::lock_guard lock(mutex_);
  const std::size_t first = head_;
  int taken = 0;
  while (taken < entries && count_.load(std::memory_order_relaxed) > 0) {
    completions[taken++] = pop().completion;
  }
  // The program has looked: completions that come later are not covered by the last event any more.
  if (taken > 0) {
    announced_ = 0;
    if (!notes_.empty()) [[unlikely]]
      trace_polled(first, static_cast<std::size_t>(taken));
  }
  return taken;
}

// What was taken just now is still in the ring, from `first` on, with mutex_ held.
void CompletionQueue::trace_polled(std::size_t first, std::size_t taken) {
  for (std::size_t i = 0; i < taken; ++i) {
    const std::size_t at = (first + i) % ring_.size();
    const std::uint64_t number = notes_[at].trace;
    if (number != 0) QueuePairTrace::polled(*context_.device().trace(), ring_[at], number);
  }
}

// Must be called with mutex_ held: forget() must not come between taking a completion and freeing
// its entries, because the owner of `slots` may be destroyed after forget().
Delivery& CompletionQueue::pop() {
  Delivery& oldest = ring_[head_];
  oldest.slots->give_back_taken(oldest.covered);
  const std::size_t left = count_.load(std::memory_order_relaxed) - 1;
  count_.store(left, std::memory_order_relaxed);
  // An empty ring begins again, so that a queue with few completions at a time touches little
  // memory.
  head_ = left == 0 || head_ + 1 == ring_.size() ? 0 : head_ + 1;
  ++counters_.polled;
  return oldest;
}

// The first look costs no system call, and no lock where nothing is there. In ProgressMode::thread
// only the progress thread drives queue pairs.
int CompletionQueue::poll(int entries, ibv_wc* completions, ReceivePlace* place) {
  if (count_.load(std::memory_order_relaxed) > 0) {
    const int taken = take(entries, completions);
    if (taken > 0) return taken;
  }
  if (context_.engine().mode() == ProgressMode::thread || entries <= 0) return 0;
  DirectPoll direct{
      .queue = this, .room = {completions, static_cast<std::size_t>(entries)}, .place = place};
  drive(&direct);
  if (direct.taken > 0 || count_.load(std::memory_order_relaxed) == 0) return direct.taken;
  return take(entries, completions);
}

CompletionQueueCounters CompletionQueue::counters() {
  const std::lock_guard lock(mutex_);
  return counters_locked();
}

CompletionQueueCounters CompletionQueue::counters_locked() const {
  CompletionQueueCounters now = counters_;
  const std::uint64_t directly = looks_.delivered.load(std::memory_order_relaxed);
  now.completions[IBV_WC_SUCCESS] += directly;
  now.polled += directly;
  return now;
}

// Polling gives places back under the same lock.
std::uint32_t CompletionQueue::unfinished(const QueueSlots& slots) {
  const std::lock_guard lock(mutex_);
  std::uint32_t places = slots.taken();
  for (std::size_t i = 0; i < count_; ++i) {
    const Delivery& delivery = ring_[(head_ + i) % ring_.size()];
    if (delivery.slots == &slots) places -= std::min(places, delivery.covered);
  }
  return places;
}

bool CompletionQueue::holds_success_of(std::uint32_t queue_pair_number) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < count_; ++i) {
    const ibv_wc& completion = ring_[(head_ + i) % ring_.size()].completion;
    if (completion.qp_num == queue_pair_number && completion.status == IBV_WC_SUCCESS) return true;
  }
  return false;
}

// The notes have a ring of their own, so that plain queues do not pay for them.
void CompletionQueue::extend(const CompletionQueueExtras& extras) {
  const std::lock_guard lock(mutex_);
  extras_ = extras;
  if (extras.stamps) notes_.resize(ring_.size());
}

// The lock is held until end_poll(), as ibv_start_poll(3) has it: the fields of the current
// completion are read in between.
int CompletionQueue::start_poll() {
  if (!extras_.single_threaded) poll_mutex_.lock();
  // Without a completion ibv_start_poll(3) fails with ENOENT, and ibv_end_poll(3) must not be
  // called then.
  const int failed = next_poll();
  if (failed != 0) end_poll();
  return failed;
}

int CompletionQueue::next_poll() {
  if (take_current()) return 0;
  if (context_.engine().mode() == ProgressMode::thread) return ENOENT;
  drive(nullptr);
  return take_current() ? 0 : ENOENT;
}

void CompletionQueue::end_poll() {
  if (!extras_.single_threaded) poll_mutex_.unlock();
}

// Copies the completion out of the ring, because push() may overwrite the entry before end_poll().
bool CompletionQueue::take_current() {
  if (count_ == 0) return false;
  const std::lock_guard lock(mutex_);
  if (count_ == 0) return false;
  if (!notes_.empty()) current_stamp_ = notes_[head_].stamp;
  const std::size_t first = head_;
  current_ = pop().completion;
  announced_ = 0;
  if (!notes_.empty()) trace_polled(first, 1);
  extended_.wr_id = current_.wr_id;
  extended_.status = current_.status;
  return true;
}

// Does the progress thread's work in the polling thread, which saves the hand-over between threads.
// Only one thread drives at a time; another poller of the same queue finds the completions that
// this one produces.
void CompletionQueue::drive(DirectPoll* poll) {
  // In a simulation the events do it, of which this is the time for the next one.
  if (context_.engine().simulated()) [[unlikely]] {
    context_.engine().poll();
    return;
  }
  if (!members_mutex_.try_lock()) return;
  const std::lock_guard lock(members_mutex_, std::adopt_lock);
  // One epoll_wait() finds the few ready ones among many; few are asked directly, which costs one
  // recvmsg() each.
  if (members_.size() > limits::directly_polled_queue_pairs) {
    context_.engine().poll();
    look_at_some();
    return;
  }
  for (const auto& member : members_) {
    poll ? member->drive_inline(*poll) : member->drive_inline();
  }
  // Reading the clock costs as much as two looks at a peer of the same host.
  constexpr std::uint32_t looks_per_clock = 32;
  if (++looks_.count % looks_per_clock == 0) drive_others();
}

// A peer of the same host does not wake a program that polls, so epoll does not show its messages.
// Each poll looks at a part of the queue pairs, in turn, so that its time does not grow with them.
void CompletionQueue::look_at_some() {
  if (!Unannounced::any()) return;
  const std::size_t count = std::min(members_.size(), limits::looks_of_a_poll);
  for (std::size_t i = 0; i < count; ++i) members_[looks_.count++ % members_.size()]->look_inline();
}

// A program may wait for one queue while another queue's connections are busy, and its polling
// keeps the progress thread from the processor. So a poller serves the whole device now and then;
// seldom enough not to delay what arrives for its own queue, but again soon while bulk comes in for
// the others.
void CompletionQueue::drive_others() {
  if (sys::now_ns() < looks_.others_due_ns) return;
  std::array<Pollable*, limits::directly_polled_queue_pairs> driven{};
  std::transform(members_.begin(), members_.end(), driven.begin(),
                 [](const auto& member) { return member->pollable(); });
  Engine& engine = context_.engine();
  const bool busy = engine.poll(std::span(driven).first(members_.size()));
  const std::uint32_t steady = engine.steady_polling();
  if (steady != 0 && steady != looks_.steady_polling) {
    for (const auto& member : members_) member->note_steady_polling();
  }
  looks_.steady_polling = steady;
  looks_.others_due_ns = busy ? 0 : sys::now_ns() + limits::between_looks_at_others_ns;
}

bool CompletionQueue::push(const Delivery& delivery, std::uint64_t trace) {
  Due due;
  bool fits = false;
  {
    const std::lock_guard lock(mutex_);
    fits = add(delivery, trace, due);
  }
  carry_out(due);
  return fits;
}

bool CompletionQueue::push(std::span<const Completed> run) {
  Due due;
  bool fits = true;
  {
    const std::lock_guard lock(mutex_);
    for (const Completed& one : run) fits &= add(one.delivery, 0, due);
  }
  carry_out(due);
  return fits;
}

// A trace shows how long a completion was in the queue, too: then each goes through the ring.
std::size_t CompletionQueue::deliver(std::span<const Completed> run, DirectPoll& poll) {
  const std::size_t count = std::min(run.size(), poll.room.size());
  if (!delivers() || context_.device().trace()) return 0;
  std::size_t done = 0;
  for (; done < count && run[done].delivery.completion.status == IBV_WC_SUCCESS; ++done) {
    poll.room[done] = run[done].delivery.completion;
    run[done].delivery.slots->give_back_locked(run[done].delivery.covered);
  }
  poll.room = poll.room.subspan(done);
  poll.taken += static_cast<int>(done);
  note_delivered(done);
  return done;
}

// Errors and solicited completions wake a program that armed for solicited events
// (ibv_req_notify_cq(3)); errors are never held back by moderation. Must be called with mutex_
// held: request_notification() sees either the completion or is seen itself.
bool CompletionQueue::add(const Delivery& delivery, std::uint64_t trace, Due& due) {
  if (count_ == ring_.size() && !grow(ring_, notes_, head_, static_cast<std::size_t>(cq_.cqe))) {
    // It will never be polled, so it gives its place back now.
    delivery.slots->give_back_taken(delivery.covered);
    ++counters_.lost;
    if (extras_.ignore_overrun) return true;
    due.overrun |= !std::exchange(overrun_, true);
    return false;
  }
  const std::size_t at = head_ + count_;
  const std::size_t slot = at >= ring_.size() ? at - ring_.size() : at;
  ring_[slot] = delivery;
  if (!notes_.empty()) {
    notes_[slot] = {extras_.stamps ? CompletionStamp::now() : CompletionStamp{}, trace};
  }
  count_.store(at + 1 - head_, std::memory_order_relaxed);
  ++counters_.completions[delivery.completion.status];
  const Armed armed = armed_.load(std::memory_order_relaxed);
  if (armed == Armed::no) return true;
  const bool failed = delivery.completion.status != IBV_WC_SUCCESS;
  if (armed == Armed::solicited && !delivery.solicited && !failed) return true;
  if (moderation_.active() && !failed && !moderation_.add(sys::now_ns())) {
    // The first completion that is held back starts the clock; later ones share its deadline.
    if (moderation_.held() == 1) due.notify_at_ns = moderation_.deadline_ns();
    return true;
  }
  note_told();
  due.notify = true;
  return true;
}

// Events are raised without the lock.
void CompletionQueue::carry_out(const Due& due) {
  if (due.overrun) overrun();
  if (due.notify) tell();
  if (due.notify_at_ns != 0) context_.engine().call_at(due.notify_at_ns, clock_);
}

bool CompletionQueue::lose(const Delivery& delivery) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    delivery.slots->give_back_taken(delivery.covered);
    ++counters_.lost;
    if (extras_.ignore_overrun) return true;
    first = !std::exchange(overrun_, true);
  }
  if (first) overrun();
  return false;
}

// A queue without a channel may be armed, and raises nothing (ibv_req_notify_cq(3)).
void CompletionQueue::tell() {
  if (channel_) channel_->events_.push(this);
}

// IBV_EVENT_CQ_ERR is raised once per queue; each lost completion is counted.
void CompletionQueue::overrun() {
  ibv_async_event event{};
  event.element.cq = &cq_;
  event.event_type = IBV_EVENT_CQ_ERR;
  context_.raise(event);
}

// The completion that the last event announced does not raise another event: perftest's latency
// tests take an event, arm, and poll only then. Further completions do: perftest's bandwidth tests
// poll one batch per event and sleep although more are in the queue.
int CompletionQueue::request_notification(bool solicited_only) {
  bool notify = false;
  {
    const std::lock_guard lock(mutex_);
    // "Any" includes "solicited", and stays armed until its event is raised.
    if (armed_ != Armed::any) armed_ = solicited_only ? Armed::solicited : Armed::any;
    notify = armed_ == Armed::any && event_raised_ && count_ > announced_;
    if (notify) note_told();
  }
  if (notify) tell();
  // After the lock is released: a queue pair's lock comes before this one.
  prepare_members(solicited_only);
  // The program is likely to sleep now, so the progress thread must leave nothing to it.
  context_.engine().expect_sleep();
  return 0;
}

// An event disarms the queue (ibv_req_notify_cq(3)). With moderation it announces all completions
// that are present, else one.
void CompletionQueue::note_told() {
  armed_ = Armed::no;
  event_raised_ = true;
  announced_ = moderation_.active() ? count_.load() : announced_ + 1;
  moderation_.notified();
  if (channel_) ++counters_.events;
}

// Raises the event for completions that the previous limits held back.
void CompletionQueue::moderate(std::uint16_t count, std::uint16_t period_us) {
  bool notify = false;
  {
    const std::lock_guard lock(mutex_);
    notify = moderation_.held() > 0;
    if (notify) note_told();
    moderation_.set(count, period_us);
    if (period_us > 0 && !clock_) {
      clock_ = std::make_shared<ModerationClock>([this] { tell_when_due(); });
    }
  }
  if (notify) tell();
}

// The clock may have been set for an event that was raised for another reason; a later event has a
// clock call of its own.
void CompletionQueue::tell_when_due() {
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t due_ns = moderation_.deadline_ns();
    if (armed_ == Armed::no || due_ns == 0 || sys::now_ns() < due_ns) return;
    note_told();
  }
  tell();
}

// ibv_resize_cq(3): EINVAL if the present completions do not fit.
int CompletionQueue::resize(int entries) {
  if (!holds(context_.device(), static_cast<std::uint64_t>(entries))) return EINVAL;
  const std::lock_guard lock(mutex_);
  // Completions are never dropped by a resize.
  if (static_cast<std::size_t>(entries) < count_) return EINVAL;
  const auto places = static_cast<std::size_t>(entries);
  if (ring_.size() > places) {
    move_rings(ring_, notes_, head_, count_, places);
    head_ = 0;
  }
  cq_.cqe = entries;
  return 0;
}

// Compacts the ring in place and frees the queue entries of the dropped completions.
template <typename Predicate>
void CompletionQueue::drop_if(Predicate unwanted) {
  const std::lock_guard lock(mutex_);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const Delivery delivery = ring_[(head_ + i) % ring_.size()];
    if (unwanted(delivery)) {
      delivery.slots->give_back_taken(delivery.covered);
      continue;
    }
    const std::size_t to = (head_ + kept++) % ring_.size();
    ring_[to] = delivery;
    if (!notes_.empty()) notes_[to] = notes_[(head_ + i) % ring_.size()];
  }
  count_ = kept;
  announced_ = std::min(announced_, kept);
}

// A thread of the parent that held a lock may have left the ring half changed. Its memory is then
// left where it is.
void CompletionQueue::abandon_after_fork() {
  if (mutex_.try_lock()) {
    mutex_.unlock();
  } else {
    std::construct_at(&ring_);
    std::construct_at(&notes_);
    head_ = 0;
    count_ = 0;
    std::construct_at(&mutex_);
  }
  if (members_mutex_.try_lock()) {
    members_mutex_.unlock();
  } else {
    std::construct_at(&members_);
    std::construct_at(&members_mutex_);
  }
}

std::uint64_t CompletionQueue::forget(std::uint32_t queue_pair_number) {
  std::uint64_t received = 0;
  drop_if([&](const Delivery& one) {
    if (one.completion.qp_num != queue_pair_number) return false;
    if (one.is_received()) ++received;
    return true;
  });
  return received;
}

void CompletionQueue::forget(const QueueSlots& slots) {
  drop_if([&](const Delivery& one) { return one.slots == &slots; });
}

// What the members find already is in the queue before the program sleeps, and raises the event.
void CompletionQueue::prepare_members(bool solicited_only) {
  const std::lock_guard lock(members_mutex_);
  for (const auto& member : members_) member->expect_event(solicited_only);
}

// Takes the lock of each queue pair, as end_look() does, so it is not for thousands of them.
bool CompletionQueue::begin_look() {
  if (!is_armed()) return false;
  const std::lock_guard lock(members_mutex_);
  if (members_.size() > limits::looks_of_a_poll) return false;
  looks_.before_sleep = true;
  for (const auto& member : members_) member->begin_look();
  return true;
}

// A queue that is not armed any more raises no event.
void CompletionQueue::look() {
  if (looks_.before_sleep && is_armed()) drive(nullptr);
}

void CompletionQueue::end_look() {
  if (!std::exchange(looks_.before_sleep, false)) return;
  const std::lock_guard lock(members_mutex_);
  for (const auto& member : members_) member->end_look();
}

// A queue pair may use the same queue for sends and receives; it is driven once.
void CompletionQueue::attach(const std::shared_ptr<Driven>& member) {
  const std::lock_guard lock(members_mutex_);
  if (members_.add(member)) looks_.steady_polling = 0;
}

void CompletionQueue::detach(const Driven* member) {
  const std::lock_guard lock(members_mutex_);
  members_.remove(member);
}

bool CompletionQueue::in_use() const {
  const std::lock_guard lock(members_mutex_);
  return !members_.empty();
}

// Uses the counters and the condition variable in ibv_cq, which libibverbs' ibv_ack_cq_events()
// signals.
void CompletionQueue::wait_for_acknowledgements() {
  // The fields are those of struct ibv_cq, since the acknowledging function is part of libibverbs.
  pthread_mutex_lock(&cq_.mutex);
  while (cq_.comp_events_completed != delivered_events_) {
    pthread_cond_wait(&cq_.cond, &cq_.mutex);
  }
  pthread_mutex_unlock(&cq_.mutex);
}

}  // namespace weft::device
