// An opened device: ibv_open_device(3). Owns nothing of the application; knows its queue pairs, so
// that memory can be taken away safely.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "device/completion/event_queue.h"
#include "device/device.h"
#include "device/memory/memory.h"
#include "device/memory/memory_window.h"
#include "device/memory/special_memory.h"

namespace weft::device {

class QueuePair;

struct ProtectionDomain {
  ibv_pd pd{};  // first: see of()
  std::uint32_t number = 0;
  std::atomic<int> users{0};  // regions, queue pairs, shared receive queues, address handles
  // Of a parent domain: what it was made of counts it as a user.
  std::array<std::atomic<int>*, 2> holders{};

  [[nodiscard]] static ProtectionDomain* of(ibv_pd* pd) {
    return reinterpret_cast<ProtectionDomain*>(pd);
  }
};

class Context {
 public:
  explicit Context(Device& device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] ibv_context* verbs() { return &extended_.context; }
  [[nodiscard]] static Context* of(ibv_context* context);

  [[nodiscard]] Device& device() { return device_; }
  [[nodiscard]] Engine& engine() { return device_.engine(); }
  [[nodiscard]] MemoryTable& memory() { return memory_; }

  // Asynchronous events: ibv_get_async_event(3).
  void raise(const ibv_async_event& event);
  int next_event(ibv_async_event& event);
  // The event of a token from sys::await_token(); see EventQueue::take().
  bool take_event(ibv_async_event& event);
  // Before an object goes: undelivered events of it are withdrawn, delivered ones are waited for.
  void settle_events(const void* element);
  void acknowledge(const ibv_async_event& event);

  [[nodiscard]] ProtectionDomain* allocate_domain();
  // Null with errno set: EINVAL, EFAULT, ENOMEM.
  [[nodiscard]] ibv_mr* register_memory(ProtectionDomain& domain, void* address,
                                        std::size_t length_bytes, std::uint64_t iova,
                                        unsigned access);
  // Discards what is written to it and reads as zeros, at any address. Null with errno set.
  [[nodiscard]] ibv_mr* allocate_null_region(ProtectionDomain& domain);
  // ibv_rereg_mr(3), with the same keys. 0, or EINVAL, EFAULT, EBUSY, and the region is as before.
  struct Reregistration {
    int changes = 0;  // IBV_REREG_MR_CHANGE_*
    ProtectionDomain* domain = nullptr;
    void* address = nullptr;
    std::size_t length_bytes = 0;
    unsigned access = 0;
  };
  int reregister_memory(ibv_mr* mr, const Reregistration& wanted);
  [[nodiscard]] NullMemory& null_memory() { return null_memory_; }
  // 0, or EBUSY while windows are bound to it.
  int deregister_memory(ibv_mr* mr);
  // Null with errno set: EINVAL, ENOMEM.
  [[nodiscard]] ibv_mw* allocate_window(ProtectionDomain& domain, ibv_mw_type type);
  int deallocate_window(MemoryWindow& window);

  // Queue pairs that the application has left behind.
  [[nodiscard]] std::vector<std::shared_ptr<QueuePair>> queue_pairs();
  [[nodiscard]] std::size_t queue_pair_count();
  // Everything else of the application's that refers to this context and is still there.
  std::atomic<int> objects{0};

  void add(const std::shared_ptr<QueuePair>& queue_pair);
  void remove(const QueuePair* queue_pair);
  // Null where there is none: a connection may name a queue pair by its number.
  [[nodiscard]] std::shared_ptr<QueuePair> find_queue_pair(std::uint32_t number);

  void abandon_after_fork();

 private:
  struct Delivered {
    const void* element;
    std::uint32_t count;
  };

  void count_delivered(const ibv_async_event& event);
  // Nobody uses [base, base + length) any more when this returns.
  void await_quiescence(const std::byte* base, std::size_t length_bytes);

  verbs_context extended_{};
  Context* self_ = this;  // of() finds it right behind extended_
  Device& device_;
  [[nodiscard]] ibv_mr* add_region(std::unique_ptr<Region> region, ProtectionDomain& domain);

  NullMemory null_memory_;
  MemoryTable memory_;
  std::atomic<std::uint32_t> next_domain_{1};
  EventQueue<ibv_async_event> events_;
  std::mutex event_mutex_;
  std::condition_variable event_acknowledged_;
  std::vector<Delivered> delivered_;

  std::mutex mutex_;
  std::vector<std::shared_ptr<QueuePair>> queue_pairs_;
};

// Fills in the data path operations and the extended ones.
void set_operations(verbs_context& context);

}  // namespace weft::device
