// An open device, ibv_open_device(3). It owns no objects of the application, but knows the queue
// pairs, so that memory can be deregistered safely.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/kept_memory.h"
#include "base/shared_set.h"
#include "device/completion/event_queue.h"
#include "device/device.h"
#include "device/memory/context_sharing.h"
#include "device/memory/memory.h"
#include "device/memory/memory_window.h"
#include "device/memory/special_memory.h"

namespace weft::device {

class QueuePair;

// A protection domain, ibv_alloc_pd(3), or a parent domain.
struct ProtectionDomain : KeptMemory {
  ibv_pd pd{};  // first: see of()
  std::uint32_t number = 0;
  Counted counted;            // not of a parent domain, which an adapter does not know
  std::atomic<int> users{0};  // regions, queue pairs, shared receive queues, address handles
  Listed listed;              // in the context's file, for other processes
  // For a parent domain: the user counts of the domains that it was made from.
  std::array<std::atomic<int>*, 2> holders{};

  [[nodiscard]] static ProtectionDomain* of(ibv_pd* pd) {
    return reinterpret_cast<ProtectionDomain*>(pd);
  }
};

// Thread-safe.
class Context : public KeptMemory {
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
  // For peers on this host. False where there is no shared memory.
  [[nodiscard]] bool open_grants() { return memory_.open_grants(); }
  [[nodiscard]] const GrantTable& grants() const { return memory_.grants(); }

  // Queues an asynchronous event, ibv_get_async_event(3).
  void raise(const ibv_async_event& event);
  int next_event(ibv_async_event& event);
  // Takes the event of a token from sys::await_token(); see EventQueue::take().
  bool take_event(ibv_async_event& event);
  // To be called before an object is destroyed: withdraws its pending events and waits until the
  // delivered ones are acknowledged.
  void settle_events(const void* element);
  // The context is being closed, and an event that was delivered may never be acknowledged:
  // settle_events() waits no more.
  void leave_events();
  void acknowledge(const ibv_async_event& event);

  // Throws std::bad_alloc where the adapter has no more.
  [[nodiscard]] ProtectionDomain* allocate_domain();
  // Nothing uses it any more.
  void release_domain(ProtectionDomain& domain);
  // What import of this context needs: ibv_import_device(3).
  [[nodiscard]] ContextSharing& sharing() { return sharing_; }
  // ibv_import_pd(3): the domain of this context with the handle, or one that stands for the domain
  // of the process from which the context was imported. Null with errno set: EINVAL.
  [[nodiscard]] ProtectionDomain* import_domain(std::uint32_t handle);
  // ibv_import_mr(3), likewise. Null with errno set: EINVAL, EEXIST, EOPNOTSUPP where this process
  // does not have that memory at the same address.
  [[nodiscard]] ibv_mr* import_region(ProtectionDomain& domain, std::uint32_t handle);
  // ibv_reg_mr(3). Null with errno set: EINVAL, EFAULT, ENOMEM, EOPNOTSUPP.
  [[nodiscard]] ibv_mr* register_memory(ProtectionDomain& domain, void* address,
                                        std::size_t length_bytes, std::uint64_t iova,
                                        unsigned access);
  // The same for memory of a file that cannot be shrunk (memfd_create(2), F_SEAL_SHRINK), which the
  // device maps: ibv_reg_dmabuf_mr(3). Null with errno set: see FileMemory::open() as well.
  struct FilePart {
    int file = -1;
    std::uint64_t offset_bytes = 0;
    std::size_t length_bytes = 0;
  };
  [[nodiscard]] ibv_mr* register_file(ProtectionDomain& domain, const FilePart& part,
                                      std::uint64_t iova, unsigned access);
  // A region that discards writes and reads as zeros at any address, ibv_alloc_null_mr(3). Null
  // with errno set.
  [[nodiscard]] ibv_mr* allocate_null_region(ProtectionDomain& domain);
  // ibv_rereg_mr(3), with unchanged keys. 0; or EINVAL, EFAULT, EBUSY, EOPNOTSUPP, and the region
  // is unchanged.
  struct Reregistration {
    int changes = 0;  // IBV_REREG_MR_CHANGE_*
    ProtectionDomain* domain = nullptr;
    void* address = nullptr;
    std::size_t length_bytes = 0;
    unsigned access = 0;
  };
  int reregister_memory(ibv_mr* mr, const Reregistration& wanted);
  [[nodiscard]] NullMemory& null_memory() { return null_memory_; }
  // Waits for placements in progress. 0; or EBUSY while windows are bound to it.
  int deregister_memory(ibv_mr* mr);
  // ibv_alloc_mw(3). Null with errno set: EINVAL, ENOMEM.
  [[nodiscard]] ibv_mw* allocate_window(ProtectionDomain& domain, ibv_mw_type type);
  int deallocate_window(MemoryWindow& window);

  // The queue pairs that the application has not destroyed.
  [[nodiscard]] std::vector<std::shared_ptr<QueuePair>> queue_pairs();
  [[nodiscard]] std::size_t queue_pair_count();
  // The number of all other objects of the application that refer to this context.
  std::atomic<int> objects{0};

  void add(const std::shared_ptr<QueuePair>& queue_pair);
  void remove(const QueuePair* queue_pair);
  // Finds a queue pair by its number, which a connection request contains; null if there is none.
  [[nodiscard]] std::shared_ptr<QueuePair> find_queue_pair(std::uint32_t number);

  void abandon_after_fork();

 private:
  struct Delivered {
    const void* element;
    std::uint32_t count;
  };

  void count_delivered(const ibv_async_event& event);
  // Waits until no queue pair uses [base, base + length) any more: the grace period of MemoryTable.
  void await_quiescence(const std::byte* base, std::size_t length_bytes);

  verbs_context extended_{};
  Context* self_ = this;  // must follow extended_ directly: of() finds it there
  Device& device_;
  // `key`: of a region of another process; nothing: a new one.
  [[nodiscard]] ibv_mr* add_region(std::unique_ptr<Region> region, ProtectionDomain& domain,
                                   std::optional<std::uint32_t> key = std::nullopt);

  NullMemory null_memory_;
  ContextSharing sharing_;
  MemoryTable memory_;
  std::atomic<std::uint32_t> next_domain_{1};
  EventQueue<ibv_async_event> events_;
  std::mutex event_mutex_;
  std::condition_variable event_acknowledged_;
  std::vector<Delivered> delivered_;
  bool events_left_ = false;

  std::mutex mutex_;
  SharedSet<QueuePair> queue_pairs_;
  // The same by number, because strangers ask for numbers.
  std::unordered_map<std::uint32_t, std::shared_ptr<QueuePair>> by_number_;
};

// Sets the data path operations and the extended ones.
void set_operations(verbs_context& context);
// Whether polls call the device itself, and nothing was put before it.
[[nodiscard]] bool polls_plainly(const ibv_context& context);

}  // namespace weft::device
