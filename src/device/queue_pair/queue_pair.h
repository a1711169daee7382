// A queue pair: ibv_create_qp(3), ibv_modify_qp(3), ibv_post_send(3), ibv_post_recv(3).
//
// This is the face that verbs programs see: handle, attributes, state, lock, and the checks of what
// is posted. A carrier moves the work (queue_pair/carrier.h); PeerSearch finds the peer before
// there is one.
//
// One lock covers the queue pair and everything in it. Lock order: queue pair, then shared receive
// queue, then completion queue, then event queue. Nothing calls out while it is held, except into
// those. Functions that need it take a QueuePairLock. Every function that may have made completions
// ends with settle(), which publishes them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/kept_memory.h"
#include "base/prefetch.h"
#include "base/quick_mutex.h"
#include "device/completion/completion_queue.h"
#include "device/datagram/datagrams.h"
#include "device/engine.h"
#include "device/queue_pair/carrier.h"
#include "device/queue_pair/live_queue_pair.h"
#include "device/queue_pair/peer_search.h"
#include "device/queue_pair/queue_pair_lock.h"
#include "device/queue_pair/queue_pair_parts.h"
#include "device/queue_pair/send_batch.h"
#include "device/queue_pair/shared_receive_queue.h"
#include "device/queue_pair/stream_carrier.h"

namespace weft::device {

class DatagramCarrier;

class QueuePair final : public Pollable,
                        public Driven,
                        public ReceiveWaiter,
                        public DatagramReceiver,
                        public KeptMemory,
                        public std::enable_shared_from_this<QueuePair> {
 public:
  // Null with errno set: EINVAL beyond a limit or for what does not exist, ENOMEM, EOPNOTSUPP for
  // types other than RC and, in the roce and ib personalities, UC, UD and XRC. IBV_QPT_XRC_RECV has
  // `xrc` and no protection domain, other types the reverse.
  [[nodiscard]] static std::shared_ptr<QueuePair> create(Context& context, ibv_pd* domain,
                                                         ibv_qp_init_attr& attributes,
                                                         XrcHandle* xrc = nullptr);
  QueuePair(Context& context, ibv_pd* domain, const ibv_qp_init_attr& attributes,
            std::uint32_t number, XrcHandle* xrc);
  ~QueuePair() override;

  [[nodiscard]] ibv_qp* verbs() { return &handle_.qp; }
  [[nodiscard]] static QueuePair* of(ibv_qp* qp) { return reinterpret_cast<Handle*>(qp)->owner; }

  // --- Verbs. Any thread; 0 or an errno value.

  int modify(const ibv_qp_attr& attributes, int mask);
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& initial);
  int post_send(ibv_send_wr* request, ibv_send_wr** bad);
  int post_receive(ibv_recv_wr* request, ibv_recv_wr** bad);
  // As post_send(), all of them or none.
  int post_all(const ibv_send_wr& first);
  // ibv_bind_mw(3), of a window of type 1.
  int bind_window(MemoryWindow& window, ibv_mw_bind& bind);
  // Those of a connection that no program makes by modify(), for query(). The state stays as it is.
  void take_attributes(const ibv_qp_attr& attributes, int mask);
  // Ends the connection if there is one, and takes the queue pair out of every list. Afterwards
  // only calls that are under way still hold it.
  void destroy();
  // ibv_open_qp(3): one more handle, through which `context` reaches this queue pair. It is closed
  // by close_handle(), and the last one closed destroys the queue pair.
  [[nodiscard]] ibv_qp* open_handle(Context& context, void* user_context);
  void close_handle(ibv_qp* handle);

  // For the calls of ibv_wr_post(3), of queue pairs that were made for them.
  void offer_batches(std::uint64_t operations);
  [[nodiscard]] bool takes_batches() const { return batch_ != nullptr; }
  [[nodiscard]] SendBatch& batch() { return *batch_; }
  [[nodiscard]] ibv_qp_ex* extended() { return &handle_.extended; }
  [[nodiscard]] std::uint32_t inline_bytes() const { return parts_.limits.inline_bytes; }

  // Provider functions share_memory() and take_shared_memory(); the latter returns -errno.
  int share_memory(int file, int bell);
  [[nodiscard]] int take_shared_memory(int& bell);
  [[nodiscard]] CarrierNote carrier_note();
  [[nodiscard]] QueuePairCounters counters();
  [[nodiscard]] RefusedAccess refused_access();
  // For callers that need other locks as well, and lock this one with std::try_to_lock.
  [[nodiscard]] QuickMutex& mutex() { return mutex_; }
  [[nodiscard]] QueuePairCounters counters_locked() const;
  [[nodiscard]] const CarrierNote& carrier_note_locked() const { return parts_.carrier; }
  [[nodiscard]] LiveQueuePair live_locked();
  // From now on takes the latencies of requests, or does so no more.
  void watch_latencies_locked(bool wanted);

  // --- Connections

  // Gives the queue pair a stream whose handshake is done, and takes it to RTS. EINVAL where it has
  // one already or is in error.
  int attach(StreamSocket socket, const StreamParameters& parameters,
             std::weak_ptr<ConnectionObserver> observer);
  // A request from the peer has come: the state of the queue pair, and its pairing if there is one.
  struct PairingView {
    ibv_qp_state state = IBV_QPS_RESET;
    std::shared_ptr<Pairing> pairing;
  };
  [[nodiscard]] PairingView asked_by_peer();
  // A step to RTR may still give it a peer to pair with.
  [[nodiscard]] bool awaits_pairing();
  // The stream of a pairing. Leaves the state as it is. EINVAL where the queue pair has moved on.
  int attach_pair(StreamSocket socket, const StreamParameters& parameters, const Pairing& pairing);
  // What a connection without TCP needs of it (Dialer::Plan); no context where there can be none.
  // Without the lock.
  [[nodiscard]] PairTerms pair_terms();
  // For such a connection: what the program shares. Settled before it connects.
  [[nodiscard]] const SharedFiles& shared_files() const { return parts_.shared.offered; }
  // The pairing has brought no stream: requests that wait for one fail.
  void fail_pairing(const Pairing& pairing);
  // Moves the queue pair to the error state and flushes what is posted: rdma_disconnect(3).
  void disconnect();
  // Whether the program has still to poll a success of this queue pair.
  [[nodiscard]] bool has_unpolled_success();

  // --- Progress. Without any lock.

  void drive_inline() override { drive_inline(nullptr); }
  void drive_inline(DirectPoll& poll) override { drive_inline(&poll); }
  void look_inline() override;
  void note_steady_polling() override;
  [[nodiscard]] Pollable* pollable() override { return this; }
  void expect_event(bool solicited_only) override;
  void begin_look() override;
  void end_look() override;
  void on_ready(std::uint32_t events) override;
  void on_ready_in_wait(std::uint32_t events) override;
  void on_ready_between_polls(std::uint32_t events) override;
  void on_deferred() override;
  void prefetch() const override;
  void on_deadline() override;
  void shared_receives_posted() override;
  void take_datagram(const Datagram& datagram) override;
  void datagram_room() override;

  // Memory is being deregistered: returns when this queue pair has nothing more to do with it.
  void forget_memory(const std::byte* base, std::size_t length_bytes);
  // A shared receive queue of the XRC domain is being destroyed: returns when this queue pair does
  // not use it any more.
  void forget_receive_queue(SharedReceiveQueue& queue);
  void abandon_after_fork();

 private:
  struct Handle {
    union {  // the plain queue pair is the beginning of both
      ibv_qp_ex extended{};
      ibv_qp qp;
    };
    QueuePair* owner = nullptr;

    Handle(QueuePair& queue_pair, Context& context, ibv_pd* domain,
           const ibv_qp_init_attr& attributes, std::uint32_t number);
    ~Handle();
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
  };

  // Besides handle_, which its creator may have closed before the others.
  struct MoreHandles {
    std::vector<std::unique_ptr<Handle>> open;
    bool first_closed = false;
  };

  [[nodiscard]] bool is_datagram() const { return handle_.qp.qp_type == IBV_QPT_UD; }
  [[nodiscard]] Context& context() const { return parts_.context; }
  [[nodiscard]] ibv_qp_state initial_state() const;
  void undo_create();
  // The end of every function that may have made completions: publishes them, and notifies the
  // observer of the connection, for which it releases the lock. Mostly there is nothing to do.
  void settle(QueuePairLock& lock, DirectPoll* poll = nullptr) {
    if ((carrier_ && carrier_->ended(lock)) || due_event_ || !parts_.settled()) {
      settle_all(lock, poll);
    }
  }
  void settle_all(QueuePairLock& lock, DirectPoll* poll);
  void publish(QueuePairLock& lock, DirectPoll* poll);
  void drive(Occasion occasion);
  void drive_inline(DirectPoll* poll);
  void send_gathered(DirectPoll* poll);
  [[nodiscard]] bool drive_for_poll(QueuePairLock& lock, DirectPoll* poll);

  // Posting
  [[nodiscard]] bool post_promptly(const ibv_send_wr& request, const QueuePairLock& lock);
  int post_one(const ibv_send_wr& request, QueuePairLock& lock);
  int accept_one(const ibv_send_wr& given, QueuePairLock& lock);
  int accept(const SendRequest& request, QueuePairLock& lock);
  void flush_posted(const iwarp::WorkRequest& work, const QueuePairLock& lock);
  int check(const ibv_send_wr& given, std::span<iwarp::LocalSlice> slices, SendRequest& request,
            const QueuePairLock& lock) const;
  [[nodiscard]] bool takes_work(const QueuePairLock& lock) const;
  [[nodiscard]] int refuse_operation(iwarp::Operation operation) const;
  [[nodiscard]] bool takes_send_immediate(const QueuePairLock& lock) const;
  void count_posted(const ibv_send_wr& request);
  void count_posted(const ibv_recv_wr& request);
  int post_one_receive(const ibv_recv_wr& request);
  int accept_receive(const ibv_recv_wr& request);
  void advance(QueuePairLock& lock);
  void posted(QueuePairLock& lock);

  // Posting with an observation
  int post_observed_list(ibv_send_wr* first, ibv_send_wr** bad, QueuePairLock& lock);
  int post_observed_receives(ibv_recv_wr* first, ibv_recv_wr** bad);
  int post_observed(const ibv_send_wr& request, Observation& observation, QueuePairLock& lock);
  int post_receive_observed(const ibv_recv_wr& request, Observation& observation);
  int accept_with_faults(const ibv_send_wr& given, DeviceFaults& faults, QueuePairLock& lock);
  int accept_receive_with_faults(const ibv_recv_wr& request, DeviceFaults& faults);
  [[nodiscard]] ConnectionEnd end_of(const ibv_send_wr& request) const;

  // States
  int check_attributes(const ibv_qp_attr& attributes, int mask, ibv_qp_state next) const;
  void apply(const ibv_qp_attr& attributes, int mask);
  int change_state(ibv_qp_state next, QueuePairLock& lock);
  void reset(QueuePairLock& lock);
  void enter_error(QueuePairLock& lock);
  void raise_due(QueuePairLock& lock);
  [[nodiscard]] bool draining(const QueuePairLock& lock) const;

  // The connection
  int open_in_pair(StreamSocket socket, const StreamParameters& parameters, bool paired,
                   QueuePairLock& lock);
  int open_stream(StreamSocket socket, const StreamParameters& parameters, bool paired,
                  QueuePairLock& lock);
  void on_carrier_ended(QueuePairLock& lock);
  void on_peer_left(QueuePairLock& lock);
  void drop_carrier(QueuePairLock& lock);
  void await_carrier(QueuePairLock& lock);
  void fail_waiting(QueuePairLock& lock);
  void drop_waiting(QueuePairLock& lock);

  Handle handle_;
  const bool signal_all_;
  const std::uint32_t missing_;  // bits of operations that the device does not offer
  QuickMutex mutex_;
  QueuePairParts parts_;
  PeerSearch search_;
  std::unique_ptr<Carrier> carrier_;      // null while a connected type has no connection
  DatagramCarrier* datagrams_ = nullptr;  // the same, of IBV_QPT_UD
  MemoryToPrefetch carrier_memory_;
  std::unique_ptr<SendBatch> batch_;
  std::atomic<bool> wakes_itself_{true};     // the kernel notices what comes in: see expect_event()
  std::optional<ibv_event_type> due_event_;  // see raise_due()
  XrcHandle* const xrc_;                     // null, except of IBV_QPT_XRC_RECV
  MoreHandles more_;
  Counted place_;  // among the queue pairs of the device
};

}  // namespace weft::device
