// Completion channels: ibv_create_comp_channel(3), ibv_get_cq_event(3).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/kept_memory.h"
#include "device/completion/event_queue.h"

namespace weft::device {

class CompletionQueue;

// Thread-safe. The program owns it, and each thread that waits for its events: a program may
// destroy a channel under such a thread, which sleeps on then, as in a read(2) of a descriptor that
// another thread closes. The last owner closes the descriptor.
class CompletionChannel : public KeptMemory {
 public:
  struct Release {
    void operator()(CompletionChannel* channel) const { channel->release(); }
  };
  using Owned = std::unique_ptr<CompletionChannel, Release>;

  [[nodiscard]] static Owned make(ibv_context* context);
  // One more owner.
  [[nodiscard]] Owned hold();
  // As the owner that make() or hold() returned.
  void release();
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
  explicit CompletionChannel(ibv_context* context);
  ~CompletionChannel() = default;
  void add(CompletionQueue& queue);
  void remove(CompletionQueue& queue);

  ibv_comp_channel channel_{};  // first: see of()
  std::atomic<unsigned> owners_{1};
  EventQueue<CompletionQueue*> events_;
  // Those that raise their events here. The mutex is held from begin_look() to end_look(), too.
  std::mutex queues_mutex_;
  std::vector<CompletionQueue*> queues_;
};

}  // namespace weft::device
