// Shared receive queues: ibv_create_srq(3), ibv_modify_srq(3), ibv_post_srq_recv(3).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/kept_memory.h"
#include "base/quick_mutex.h"
#include "device/adapter.h"
#include "device/queue_pair/receive_queue.h"

namespace weft::device {

class CompletionQueue;
class Context;
class Device;
struct XrcHandle;

// A queue pair that found no receive in the shared queue, and holds a message for the next one.
class ReceiveWaiter {
 public:
  virtual ~ReceiveWaiter() = default;
  // Called without any lock, after receives were posted. Others may have taken them already.
  virtual void shared_receives_posted() = 0;
};

class SharedReceiveQueue : public KeptMemory {
 public:
  SharedReceiveQueue(Context& context, ibv_pd* domain, const ibv_srq_init_attr& attributes);
  ~SharedReceiveQueue();
  SharedReceiveQueue(const SharedReceiveQueue&) = delete;
  SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;

  // EINVAL for attributes that this device does not grant; 0.
  [[nodiscard]] static int check(Device& device, const ibv_srq_attr& wanted);

  [[nodiscard]] ibv_srq* verbs() { return &srq_; }
  [[nodiscard]] static SharedReceiveQueue* of(ibv_srq* srq) {
    return reinterpret_cast<SharedReceiveQueue*>(srq);
  }

  [[nodiscard]] std::uint32_t domain_number() const;

  int post(ibv_recv_wr* request, ibv_recv_wr** bad);
  // Takes one for a queue pair; raises IBV_EVENT_SRQ_LIMIT_REACHED when the level falls below.
  // Where there is none and `waiter` is not null, that one is notified once of new receives.
  bool take(iwarp::ReceiveRequest& request, const std::weak_ptr<ReceiveWaiter>* waiter = nullptr);
  int modify(const ibv_srq_attr& attributes, int mask);
  void query(ibv_srq_attr& attributes);

  // Of the receives that were taken and whose completions were not polled, and of the posted ones.
  [[nodiscard]] QueueSlots& slots() { return ring_.slots(); }
  // What a queue of type XRC has besides (ibv_create_srq_ex(3)); empty for others.
  struct Extended {
    std::uint32_t number;
    CompletionQueue& completions;
    XrcHandle& handle;
  };
  void extend(const Extended& extended) { extended_.emplace(extended); }
  [[nodiscard]] const std::optional<Extended>& extended() const { return extended_; }
  [[nodiscard]] bool in_use() const { return users_ > 0; }
  void add_user() { ++users_; }
  void remove_user() { --users_; }

 private:
  void add_waiter(const std::weak_ptr<ReceiveWaiter>& added);

  ibv_srq srq_{};  // first: see of()
  Context& context_;
  Counted counted_;
  std::atomic<int> users_{0};  // queue pairs
  std::optional<Extended> extended_;
  QuickMutex mutex_;
  ReceiveRing ring_;
  std::uint32_t max_slices_;
  std::uint32_t limit_ = 0;  // 0: not armed
  std::vector<std::weak_ptr<ReceiveWaiter>> waiters_;
};

}  // namespace weft::device
