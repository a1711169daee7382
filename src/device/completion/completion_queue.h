// Completion queues: ibv_create_cq(3), ibv_poll_cq(3), ibv_req_notify_cq(3), and the polling part
// of ibv_create_cq_ex(3).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/kept_memory.h"
#include "base/quick_mutex.h"
#include "base/receive_place.h"
#include "base/shared_set.h"
#include "device/adapter.h"
#include "device/completion/completion_channel.h"
#include "device/completion/event_moderation.h"
#include "device/queue_pair/queue_slots.h"
#include "weft/counters.hpp"

namespace weft::device {

class Context;
class Device;
class Pollable;
class CompletionQueue;

// Where a program that polls an empty queue takes what its queue pairs complete meanwhile: straight
// into the array of its call.
struct DirectPoll {
  CompletionQueue* queue = nullptr;
  std::span<ibv_wc> room{};  // what is left of the array
  int taken = 0;
  ReceivePlace* place = nullptr;  // of the caller, which may be used once; null: none

  // Whether the message that is delivered next, of so many bytes, goes to the place.
  [[nodiscard]] bool uses_place(std::size_t bytes) const {
    return place && place->used < 0 && bytes <= place->bytes;
  }

  // The next place of the array, which has one. Its value is not defined.
  ibv_wc& take() {
    ibv_wc& next = room.front();
    room = room.subspan(1);
    ++taken;
    return next;
  }
};

// An object that may complete into a queue: a queue pair. An application thread that polls the
// queue drives it.
class Driven {
 public:
  virtual ~Driven() = default;
  // Receives and sends what is possible now, without waiting for a lock or for the network. The
  // caller holds no queue pair's lock.
  virtual void drive_inline() = 0;
  // The same for a thread that polls poll.queue.
  virtual void drive_inline(DirectPoll& /*poll*/) { drive_inline(); }
  // The same where the kernel's epoll does not show what comes in; else does nothing.
  virtual void look_inline() {}
  // The caller has called drive_inline() for a while and goes on with it: see Engine::leave().
  virtual void note_steady_polling() {}
  // What the engine knows it as, if it does.
  [[nodiscard]] virtual Pollable* pollable() { return nullptr; }
  // The program has armed the queue and may sleep: ibv_req_notify_cq(3). Called without any lock.
  virtual void expect_event(bool /*solicited_only*/) {}
  // A thread drives this from now on in place of sleeping, so what comes in need not wake this
  // process. Without any lock.
  virtual void begin_look() {}
  // The thread may sleep now: as before begin_look().
  virtual void end_look() {}
};

// The time at which a completion became visible.
struct CompletionStamp {
  std::uint64_t raw_ns = 0;        // CLOCK_MONOTONIC
  std::uint64_t wallclock_ns = 0;  // CLOCK_REALTIME

  [[nodiscard]] static CompletionStamp now();
};

// A completion on its way to the application, and the queue entries that become free when it is
// polled.
struct Delivery {
  ibv_wc completion{};
  QueueSlots* slots = nullptr;
  // The number of requests that it completes: itself and the unsignaled ones before it.
  std::uint32_t covered = 1;
  bool solicited = false;  // raises an event at a program that armed for solicited events only
  bool receive = false;

  // The success of a receive.
  [[nodiscard]] bool is_received() const { return receive && completion.status == IBV_WC_SUCCESS; }
  // The lock of the queue pair must be held, and it is in no completion queue.
  void drop() const { slots->give_back_locked(covered); }
};

// A completion, and the queue that it goes into.
struct Completed {
  Delivery delivery;
  CompletionQueue* into = nullptr;
};

// The options of ibv_create_cq_ex(3) beyond those of ibv_create_cq(3).
struct CompletionQueueExtras {
  bool stamps = false;           // keep the time of each completion
  bool single_threaded = false;  // the application never overlaps start_poll to end_poll
  bool ignore_overrun = false;   // drop what does not fit, without an event
};

// A completion queue. Thread-safe. Queue pairs push into it under their own locks, so it never
// takes a queue pair's lock while it holds mutex_.
class CompletionQueue : public KeptMemory {
 public:
  CompletionQueue(Context& context, int entries, void* user_context, CompletionChannel* channel);
  // Whether the device grants a queue of this size.
  [[nodiscard]] static bool holds(Device& device, std::uint64_t entries);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  [[nodiscard]] ibv_cq* verbs() { return &cq_; }
  [[nodiscard]] ibv_cq_ex* extended() { return &extended_; }
  [[nodiscard]] static CompletionQueue* of(ibv_cq* cq) {
    return reinterpret_cast<CompletionQueue*>(cq);
  }

  // Polls for the application. If the queue is empty, drives the attached queue pairs in this
  // thread. A message may be placed in `place`, where that is not null, instead of its receive.
  int poll(int entries, ibv_wc* completions, ReceivePlace* place = nullptr);
  int request_notification(bool solicited_only);
  // A thread that waits for an event of this queue drives its queue pairs by look() for a moment,
  // so that nothing has to wake this process. begin_look() returns whether that is so: the queue is
  // armed, and has few queue pairs. Called by one thread at a time.
  [[nodiscard]] bool begin_look();
  void look();
  void end_look();
  // The application may sleep until a completion comes. Any thread, without a lock.
  [[nodiscard]] bool is_armed() const {
    return armed_.load(std::memory_order_relaxed) != Armed::no;
  }
  [[nodiscard]] bool is_armed_for_any() const {
    return armed_.load(std::memory_order_relaxed) == Armed::any;
  }
  int resize(int entries);
  // Configures moderation, ibv_modify_cq(3); see EventModeration::set().
  void moderate(std::uint16_t count, std::uint16_t period_us);

  [[nodiscard]] CompletionQueueCounters counters();
  // For the statistics, which must not wait for a lock for ever; mutex() must be held.
  [[nodiscard]] QuickMutex& mutex() { return mutex_; }
  [[nodiscard]] CompletionQueueCounters counters_locked() const;
  // Completions that the program has not polled; mutex() must be held.
  [[nodiscard]] std::size_t depth_locked() const { return count_; }
  // How many of the places that are taken belong to requests without a completion in this queue.
  // The lock of the queue pair must be held.
  [[nodiscard]] std::uint32_t unfinished(const QueueSlots& slots);
  // Whether the program has still to poll a success of this queue pair.
  [[nodiscard]] bool holds_success_of(std::uint32_t queue_pair_number);
  // The number within the device's statistics.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  void set_number(std::uint64_t number) { number_ = number; }

  // To be called before the first completion only.
  void extend(const CompletionQueueExtras& extras);
  // ibv_start_poll(3) and its companions: 0, or ENOENT if the queue is empty. After a successful
  // start, other threads' start_poll() blocks until end_poll(), unless single-threaded.
  int start_poll();
  int next_poll();
  void end_poll();
  [[nodiscard]] const ibv_wc& current() const { return current_; }
  [[nodiscard]] const CompletionStamp& current_stamp() const { return current_stamp_; }

  // Called by queue pairs. False: the queue is full, which is an error of the queue pair as well.
  // `trace`: its number in the trace of the device; 0: it is in none.
  bool push(const Delivery& delivery, std::uint64_t trace = 0);
  // The same for several, all of which go into this queue, under one lock.
  bool push(std::span<const Completed> run);
  // Adds a success where that takes no more than a place in the ring, which `fill` is called with.
  // False, and nothing has happened: where the ring is full, or the queue is armed or has notes.
  template <typename Fill>
  [[nodiscard]] bool push_plainly(Fill fill) {
    const std::lock_guard lock(mutex_);
    const std::size_t count = count_.load(std::memory_order_relaxed);
    if (count == ring_.size() || is_armed() || !notes_.empty()) return false;
    const std::size_t at = head_ + count;
    fill(ring_[at >= ring_.size() ? at - ring_.size() : at]);
    count_.store(count + 1, std::memory_order_relaxed);
    ++counters_.completions[IBV_WC_SUCCESS];
    return true;
  }
  // Puts the first of them, all of which go into this queue, into the array of the thread that
  // polls it, and returns how many. The others are to be pushed. The caller is that thread, and
  // holds the lock of the queue pair.
  [[nodiscard]] std::size_t deliver(std::span<const Completed> run, DirectPoll& poll);
  // Whether deliver() may put successes there: what is in the ring was completed before, a queue
  // that is armed raises an event, and stamps show how long a completion was in the queue. Looks at
  // them without mutex_: a program that arms while it polls has no order between the two.
  [[nodiscard]] bool delivers() const {
    return count_.load(std::memory_order_relaxed) == 0 && !is_armed() && !extras_.stamps;
  }
  // So many were put there.
  void note_delivered(std::size_t count) {
    looks_.delivered.store(looks_.delivered.load(std::memory_order_relaxed) + count,
                           std::memory_order_relaxed);
  }
  // As push() to a queue that is full.
  bool lose(const Delivery& delivery);
  // In the child after fork(2), with no other thread.
  void abandon_after_fork();
  // Drops the completions of a queue pair that is destroyed or reset (ibv_modify_qp(3) to RESET).
  // Returns how many successful receives were among them.
  std::uint64_t forget(std::uint32_t queue_pair_number);
  // Drops those whose entries are in `slots`, of a shared receive queue that is destroyed.
  void forget(const QueueSlots& slots);

  // The queue pairs that may complete into this queue; polling drives them.
  void attach(const std::shared_ptr<Driven>& member);
  void detach(const Driven* member);
  [[nodiscard]] bool in_use() const;

  // Blocks until all delivered events are acknowledged, as ibv_destroy_cq(3) requires.
  void wait_for_acknowledgements();
  void count_delivered() { ++delivered_events_; }

 private:
  enum class Armed : std::uint8_t { no, solicited, any };
  // What an extended queue or a trace keeps beside a completion.
  struct Note {
    CompletionStamp stamp;
    std::uint64_t trace = 0;
  };

  // What is due once completions have been added and the lock is released.
  struct Due {
    bool notify = false;
    bool overrun = false;
    std::uint64_t notify_at_ns = 0;  // 0: never
  };

  // Of drive() at the members, and at what else the device has.
  struct Looks {
    std::uint32_t count = 0;
    std::uint64_t others_due_ns = 0;   // see drive_others()
    std::uint32_t steady_polling = 0;  // Engine::steady_polling() that the members know of
    bool before_sleep = false;         // from begin_look() to end_look(), of that thread alone
    // Successes that deliver() has put into arrays, which are in no other counter.
    std::atomic<std::uint64_t> delivered{0};
  };

  template <typename Predicate>
  void drop_if(Predicate unwanted);
  [[nodiscard]] bool add(const Delivery& delivery, std::uint64_t trace, Due& due);
  void carry_out(const Due& due);
  int take(int entries, ibv_wc* completions);
  bool take_current();
  Delivery& pop();
  void trace_polled(std::size_t first, std::size_t taken);
  void drive(DirectPoll* poll);
  void look_at_some();
  void drive_others();
  void prepare_members(bool solicited_only);
  void overrun();
  void note_told();
  void tell();
  void tell_when_due();

  // First, see of(): the plain queue is the common initial part of both.
  union {
    ibv_cq_ex extended_{};
    ibv_cq cq_;
  };
  Context& context_;
  Counted counted_;
  CompletionChannel* channel_;

  QuickMutex mutex_;
  std::vector<Delivery> ring_;  // grows by need, up to cq_.cqe places
  std::vector<Note> notes_;     // parallel to ring_; empty where nothing asks for them
  std::size_t head_ = 0;
  // The completions in the ring. Changed with mutex_ held; a look without it costs no lock, and
  // sees everything that was pushed before the looking thread last held the lock.
  std::atomic<std::size_t> count_{0};
  // What the application has armed for; see request_notification(). Changed with mutex_ held.
  std::atomic<Armed> armed_{Armed::no};
  bool event_raised_ = false;  // an event was raised since the queue was created
  std::size_t announced_ = 0;  // completions since the last poll that events have announced
  bool overrun_ = false;
  EventModeration moderation_;
  std::shared_ptr<ModerationClock> clock_;  // null until moderation with a period is set
  CompletionQueueCounters counters_;
  std::uint64_t number_ = 0;
  std::atomic<std::uint32_t> delivered_events_{0};

  // For extended queues only.
  CompletionQueueExtras extras_;
  QuickMutex poll_mutex_;  // held from start_poll() to end_poll()
  ibv_wc current_{};
  CompletionStamp current_stamp_;

  mutable QuickMutex members_mutex_;
  SharedSet<Driven> members_;
  Looks looks_;
};

}  // namespace weft::device
