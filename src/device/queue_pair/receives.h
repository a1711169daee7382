// Where a queue pair takes its receives from: its own queue, or a shared one.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <utility>

#include "device/queue_pair/receive_queue.h"
#include "device/queue_pair/shared_receive_queue.h"
#include "device/queue_pair/xrc_domain.h"

namespace weft::device {

// Not thread safe: the queue pair's lock covers it (a shared queue has its own lock besides).
class Receives {
 public:
  // `shared` may be null; otherwise the receive limits of `cap` are not used.
  Receives(const ibv_qp_cap& cap, SharedReceiveQueue* shared)
      : own_(cap.max_recv_wr, cap.max_recv_sge), shared_(shared) {}

  [[nodiscard]] SharedReceiveQueue* shared() const { return shared_; }
  [[nodiscard]] const ReceiveRing& own() const { return own_; }
  // Notified of new receives in the shared queue, after a take() that found none.
  void set_waiter(std::weak_ptr<ReceiveWaiter> waiter) { waiter_ = std::move(waiter); }

  // A queue pair of type XRC_RECV: each receive comes from the queue of the domain that its request
  // names (ReceiveRequest::queue).
  void set_domain(std::shared_ptr<XrcDomain> domain) { domain_ = std::move(domain); }
  [[nodiscard]] const std::shared_ptr<XrcDomain>& domain() const { return domain_; }
  // The queue that the peer has named last; 0: none.
  void set_named(std::uint32_t number) { named_ = number; }
  [[nodiscard]] std::uint32_t named() const { return named_; }

  // To the own queue: 0, ENOMEM where it is full, EINVAL for too many slices.
  int post(const ibv_recv_wr& request) { return own_.post(request); }
  // Takes the oldest receive; false where there is none. `waits`: the queue pair wants to be
  // notified of the next one (of its own queue it knows).
  bool take(iwarp::ReceiveRequest& request, bool waits) {
    SharedReceiveQueue* const shared = domain_ ? domain_->find(request.queue) : shared_;
    if (shared) return shared->take(request, waits ? &waiter_ : nullptr);
    return own_.take(request);
  }
  // The oldest receive of the own queue, which exists and was used where it lies: its place is
  // given back here.
  [[nodiscard]] std::uint64_t own_oldest_id() const { return own_.id_of(own_.first()); }
  void drop_own_oldest() { own_.drop_oldest(); }
  // Takes the oldest receive of the own queue, to flush it.
  bool take_own(iwarp::ReceiveRequest& request) { return own_.take(request); }
  void clear() { own_.clear(); }

  // The places of the queue that receives come from.
  [[nodiscard]] QueueSlots& slots() { return shared_ ? shared_->slots() : own_.slots(); }

 private:
  ReceiveRing own_;
  SharedReceiveQueue* shared_;
  std::shared_ptr<XrcDomain> domain_;
  std::uint32_t named_ = 0;
  std::weak_ptr<ReceiveWaiter> waiter_;
};

}  // namespace weft::device
