// Completion channels: ibv_create_comp_channel(3), ibv_get_cq_event(3).
#pragma once

#include <infiniband/verbs.h>

#include <mutex>
#include <vector>

#include "base/kept_memory.h"
#include "device/completion/event_queue.h"

namespace weft::device {

class CompletionQueue;

// Thread-safe.
class CompletionChannel : public KeptMemory {
 public:
  explicit CompletionChannel(ibv_context* context);
  [[nodiscard]] ibv_comp_channel* verbs() { return &channel_; }
  [[nodiscard]] static CompletionChannel* of(ibv_comp_channel* channel) {
    return reinterpret_cast<CompletionChannel*>(channel);
  }

  // Blocks until the next event; 0 or an errno.
  int next(CompletionQueue*& queue);
  // Takes the event of a token from sys::await_token(); see EventQueue::take().
  bool take(CompletionQueue*& queue);
  // Without a lock.
  [[nodiscard]] bool has_event() const { return events_.has_event(); }
  // Whether there was a token for take(). Does not block.
  [[nodiscard]] bool take_token();

  // For a thread that waits: from now on it drives by look() what may raise an event here, so that
  // nothing has to wake this process. False: another thread does, or nothing can raise one.
  [[nodiscard]] bool begin_look();
  void look();
  // After begin_look() in any case, by the same thread.
  void end_look();

 private:
  friend class CompletionQueue;
  void add(CompletionQueue& queue);
  void remove(CompletionQueue& queue);

  ibv_comp_channel channel_{};  // first: see of()
  EventQueue<CompletionQueue*> events_;
  // Those that raise their events here. The mutex is held from begin_look() to end_look(), too.
  std::mutex queues_mutex_;
  std::vector<CompletionQueue*> queues_;
};

}  // namespace weft::device
