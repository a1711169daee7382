// Domains of extended reliable connections (XRC): ibv_open_xrcd(3).
//
// A queue pair of type XRC_RECV has neither a receive queue nor a completion queue. Each request of
// its peer names a shared receive queue of type XRC in the same domain, which has both, and whose
// protection domain decides what the request may access (InfiniBand Architecture Specification,
// Annex A14).
//
// Domains that were opened for the same file are one, within this process. Between processes they
// are not: the memory of a receive belongs to one process, and the stream of a queue pair too.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "device/completion/completion_queue.h"

namespace weft::device {

class Context;
class Device;
class QueuePair;
class SharedReceiveQueue;

// The queues and queue pairs of one domain. Thread-safe. Lock order: a queue pair's lock, then that
// of its domain.
//
// The completion queue of each shared receive queue has the domain as its member, in place of the
// queue pairs: polling it drives them all.
class XrcDomain final : public Driven {
 public:
  // Null if there is no such queue. The queue stays valid while the caller holds the lock of a
  // queue pair of this domain: see remove().
  [[nodiscard]] SharedReceiveQueue* find(std::uint32_t number);

  void add(SharedReceiveQueue& queue, const std::shared_ptr<XrcDomain>& self);
  // Returns when no queue pair uses the queue any more. The caller holds no lock.
  void remove(SharedReceiveQueue& queue);
  void add(const std::shared_ptr<QueuePair>& queue_pair);
  void remove(const QueuePair& queue_pair);
  // By its number, for ibv_open_qp(3). Null if there is none.
  [[nodiscard]] std::shared_ptr<QueuePair> find_queue_pair(std::uint32_t number);

  void drive_inline() override;
  void expect_event(bool solicited_only) override;
  void begin_look() override;
  void end_look() override;

 private:
  [[nodiscard]] std::vector<std::shared_ptr<QueuePair>> queue_pairs();

  std::mutex mutex_;
  std::unordered_map<std::uint32_t, SharedReceiveQueue*> queues_;
  std::vector<std::shared_ptr<QueuePair>> queue_pairs_;
};

// The domains of a device that belong to files. Thread-safe.
class XrcDomains {
 public:
  // ibv_open_xrcd(3): the domain of the file, or a new one where `flags` has O_CREAT. Null with
  // errno set, as by Linux: EBADF; EAGAIN if there is none; EINVAL if there is one and `flags` has
  // O_EXCL.
  [[nodiscard]] std::shared_ptr<XrcDomain> open(int file, int flags);

 private:
  struct Key {
    dev_t device = 0;
    ino_t inode = 0;
    auto operator<=>(const Key&) const = default;
  };

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<XrcDomain>> domains_;
};

// What ibv_open_xrcd(3) returns: one program's reference to a domain.
struct XrcHandle {
  ibv_xrcd xrcd{};  // first: see of()
  std::shared_ptr<XrcDomain> domain;
  std::atomic<int> users{0};  // queues and queue pairs that were created with it

  [[nodiscard]] static XrcHandle* of(ibv_xrcd* xrcd) { return reinterpret_cast<XrcHandle*>(xrcd); }
};

// Whether a type of queue pairs (ibv_qp_type) is one of the two ends of an extended connection.
[[nodiscard]] constexpr bool is_extended(int type) {
  return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

// EOPNOTSUPP, with a message for the user, on a device that looks like an iWARP adapter; else 0.
[[nodiscard]] int refusal_of_xrc(const Device& device);

// The functions of verbs.h. Null, or an errno value, with errno set.
ibv_xrcd* open_xrc_domain(ibv_context* context, ibv_xrcd_init_attr* attributes);
int close_xrc_domain(ibv_xrcd* xrcd);
// ibv_create_srq_ex(3), for queues of type XRC.
ibv_srq* create_extended_shared_queue(ibv_context* context, ibv_srq_init_attr_ex* attributes);
// A queue of type XRC is destroyed: takes it out of its domain, and returns when no queue pair uses
// it any more.
void leave_domain(SharedReceiveQueue& queue);
int number_of_shared_queue(ibv_srq* srq, std::uint32_t* number);
// ibv_open_qp(3): one more handle of a queue pair of type XRC_RECV.
ibv_qp* open_queue_pair(ibv_context* context, ibv_qp_open_attr* attributes);

}  // namespace weft::device
