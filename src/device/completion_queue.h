// Completion queues and their channels: ibv_create_cq(3), ibv_poll_cq(3), ibv_req_notify_cq(3),
// ibv_get_cq_event(3).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/event_queue.h"

namespace weft::device {

class Context;
class QueuePair;
class CompletionQueue;

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

class CompletionQueue {
 public:
  CompletionQueue(Context& context, int entries, void* user_context, CompletionChannel* channel);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  [[nodiscard]] ibv_cq* verbs() { return &cq_; }
  [[nodiscard]] static CompletionQueue* of(ibv_cq* cq) {
    return reinterpret_cast<CompletionQueue*>(cq);
  }

  // From the application: drives the queue pairs where nothing is there yet.
  int poll(int entries, ibv_wc* completions);
  int request_notification(bool solicited_only);
  int resize(int entries);

  // From a queue pair. `solicited`: wakes a program that armed for solicited events only.
  void push(const ibv_wc& completion, bool solicited);
  // Drops what is left of a queue pair that goes away or starts again.
  void forget(std::uint32_t queue_pair_number);

  // Queue pairs that may complete into this queue.
  void attach(const std::shared_ptr<QueuePair>& queue_pair);
  void detach(const QueuePair* queue_pair);
  [[nodiscard]] bool in_use() const;

  // Waits until all delivered events are acknowledged, as ibv_destroy_cq(3) says.
  void wait_for_acknowledgements();
  void count_delivered() { ++delivered_events_; }

 private:
  enum class Armed : std::uint8_t { no, solicited, any };

  int take(int entries, ibv_wc* completions);
  void drive();
  void overrun();
  void note_told();

  ibv_cq cq_{};  // first: see of()
  Context& context_;
  CompletionChannel* channel_;

  std::mutex mutex_;
  std::vector<ibv_wc> ring_;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
  Armed armed_ = Armed::no;
  bool told_before_ = false;  // an event was raised since the queue was made
  std::size_t told_ = 0;      // events raised since a completion was polled
  bool overrun_ = false;
  std::atomic<std::uint32_t> delivered_events_{0};

  mutable std::mutex members_mutex_;
  std::vector<std::shared_ptr<QueuePair>> members_;
};

}  // namespace weft::device
