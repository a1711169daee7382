// Completion queues and their channels: ibv_create_cq(3), ibv_poll_cq(3), ibv_req_notify_cq(3),
// ibv_get_cq_event(3), and the polling part of ibv_create_cq_ex(3).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/completion/event_moderation.h"
#include "device/completion/event_queue.h"
#include "device/queue_pair/queue_slots.h"
#include "weft/counters.hpp"

namespace weft::device {

class Context;
class CompletionQueue;

// What may complete into a queue: a queue pair. An application thread that polls the queue drives
// it.
class Driven {
 public:
  virtual ~Driven() = default;
  // Receives and sends what is possible now, without waiting for a lock or for the network. Called
  // without any lock.
  virtual void drive_inline() = 0;
};

class CompletionChannel {
 public:
  explicit CompletionChannel(ibv_context* context);
  [[nodiscard]] ibv_comp_channel* verbs() { return &channel_; }
  [[nodiscard]] static CompletionChannel* of(ibv_comp_channel* channel) {
    return reinterpret_cast<CompletionChannel*>(channel);
  }

  // Waits for the next event; 0 or an errno value.
  int next(CompletionQueue*& queue);
  // The event of a token from sys::await_token(); see EventQueue::take().
  bool take(CompletionQueue*& queue);

 private:
  friend class CompletionQueue;
  ibv_comp_channel channel_{};  // first: see of()
  EventQueue<CompletionQueue*> events_;
};

// When a completion became visible.
struct CompletionStamp {
  std::uint64_t raw_ns = 0;        // CLOCK_MONOTONIC
  std::uint64_t wallclock_ns = 0;  // CLOCK_REALTIME

  [[nodiscard]] static CompletionStamp now();
};

// A completion on its way to the application, and the places in a queue that it frees.
struct Delivery {
  ibv_wc completion{};
  QueueSlots* slots = nullptr;
  std::uint32_t covered = 1;
  bool solicited = false;  // wakes a program that armed for solicited events only
  bool receive = false;

  void free_slots() const { slots->give_back(covered); }
};

// What ibv_create_cq_ex(3) adds.
struct CompletionQueueExtras {
  bool stamps = false;           // keep the time of each completion
  bool single_threaded = false;  // the application's start_poll to end_poll never overlap
  bool ignore_overrun = false;   // what does not fit is the application's fault and makes no event
};

class CompletionQueue {
 public:
  CompletionQueue(Context& context, int entries, void* user_context, CompletionChannel* channel);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  [[nodiscard]] ibv_cq* verbs() { return &cq_; }
  [[nodiscard]] ibv_cq_ex* extended() { return &extended_; }
  [[nodiscard]] static CompletionQueue* of(ibv_cq* cq) {
    return reinterpret_cast<CompletionQueue*>(cq);
  }

  // From the application: drives the queue pairs where nothing is there yet.
  int poll(int entries, ibv_wc* completions);
  int request_notification(bool solicited_only);
  int resize(int entries);
  // Events for several completions at a time; see EventModeration::set().
  void moderate(std::uint16_t count, std::uint16_t period_us);

  [[nodiscard]] CompletionQueueCounters counters();
  // Among those of the device; 0 where nobody keeps a list.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  void set_number(std::uint64_t number) { number_ = number; }

  // Before the first completion only.
  void extend(const CompletionQueueExtras& extras);
  // ibv_start_poll() and its companions: 0, or ENOENT where nothing is there. From a start that
  // brought something to the end, other threads' starts wait, unless single-threaded.
  int start_poll();
  int next_poll();
  void end_poll();
  [[nodiscard]] const ibv_wc& current() const { return current_; }
  [[nodiscard]] const CompletionStamp& current_stamp() const { return current_stamp_; }

  // From a queue pair. False: it does not fit, which is an error of the queue pair as well.
  bool push(const Delivery& delivery);
  // Drops what is left of a queue pair that goes away or starts again.
  void forget(std::uint32_t queue_pair_number);

  // Queue pairs that may complete into this queue.
  void attach(const std::shared_ptr<Driven>& member);
  void detach(const Driven* member);
  [[nodiscard]] bool in_use() const;

  // Waits until all delivered events are acknowledged, as ibv_destroy_cq(3) says.
  void wait_for_acknowledgements();
  void count_delivered() { ++delivered_events_; }

 private:
  enum class Armed : std::uint8_t { no, solicited, any };

  int take(int entries, ibv_wc* completions);
  bool take_current();
  Delivery& pop();
  void drive();
  void overrun();
  void note_told();
  void tell();
  void tell_when_due();

  // First: see of(). The plain queue is the common beginning of both.
  union {
    ibv_cq_ex extended_{};
    ibv_cq cq_;
  };
  Context& context_;
  CompletionChannel* channel_;

  std::mutex mutex_;
  std::vector<Delivery> ring_;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
  Armed armed_ = Armed::no;
  bool told_before_ = false;  // an event was raised since the queue was made
  std::size_t told_ = 0;      // events raised since a completion was polled
  bool overrun_ = false;
  EventModeration moderation_;
  std::shared_ptr<ModerationClock> clock_;  // once there was a period
  CompletionQueueCounters counters_;
  std::uint64_t number_ = 0;
  std::atomic<std::uint32_t> delivered_events_{0};

  // Of extended queues.
  CompletionQueueExtras extras_;
  std::vector<CompletionStamp> stamps_;  // beside ring_, or empty where nobody asked
  std::mutex poll_mutex_;                // from start_poll() to end_poll()
  ibv_wc current_{};
  CompletionStamp current_stamp_;

  mutable std::mutex members_mutex_;
  std::vector<std::shared_ptr<Driven>> members_;
};

}  // namespace weft::device
