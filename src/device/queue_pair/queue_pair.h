// A queue pair: ibv_create_qp(3), ibv_modify_qp(3), ibv_post_send(3), ibv_post_recv(3).
//
// One lock covers the queue pair, its socket and its protocol machine. Lock order: queue pair, then
// shared receive queue, then completion queue, then event queue. Nothing calls out while it is
// held, except into those.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/completion/completion_queue.h"
#include "device/connect/pairing.h"
#include "device/connect/stream_socket.h"
#include "device/context.h"
#include "device/datagram/datagram_packet.h"
#include "device/engine.h"
#include "device/memory/memory_window.h"
#include "device/queue_pair/receive_queue.h"
#include "device/queue_pair/send_batch.h"
#include "device/queue_pair/shared_receive_queue.h"
#include "device/queue_pair/waiting_work.h"
#include "iwarp/connection.h"

namespace weft::device {

struct Datagram;

// Who set up the connection of a queue pair and wants to know what becomes of it. Called without
// any lock, from whichever thread found out.
class ConnectionObserver {
 public:
  virtual ~ConnectionObserver() = default;
  // The peer's first FPDU is there.
  virtual void on_stream_ready() = 0;
  // The stream has ended, by either side; completions it caused are in their queues already.
  virtual void on_stream_ended(iwarp::EndReason reason) = 0;
};

// What the handshake has agreed on, as seen by this side.
struct StreamParameters {
  bool initiator = true;
  bool crc = true;
  bool send_markers = false;
  bool acknowledge = true;
  std::uint16_t ird = 1;       // on the wire
  std::uint16_t wire_ord = 1;  // on the wire
  std::uint16_t ord = 0;       // the application's share
  iwarp::RtrKind rtr = iwarp::RtrKind::none;
  // What cannot be placed is dropped, and nobody learns of it: IBV_QPT_UC.
  bool unreliable = false;
  bool to_itself = false;  // the socket leads back here
  // Sends without a receive that are held; 0: the stream ends at once.
  std::uint32_t hold_bytes = 0;
  // How often the peer's Sends are to be tried: what it said in its hello, or else what the
  // application here said of it.
  std::uint8_t rnr_retries = iwarp::rnr_retry_infinite;
  iwarp::PeerFeatures peer{};
  // What our own hello said: MemoryTable::random_control_stag(), or 0.
  std::uint32_t control_stag = 0;
};

// A datagram that the socket had no room for, or that waits behind such a one: a finished packet,
// which needs the application's memory no more.
struct UnsentDatagram {
  std::uint64_t wr_id = 0;
  bool signaled = true;
  iwarp::Status status = iwarp::Status::success;  // otherwise there is no packet
  DatagramRoute route{};
  unsigned interface_index = 0;
  std::vector<std::byte> packet{};
};

class QueuePair final : public Pollable,
                        private iwarp::Host,
                        public std::enable_shared_from_this<QueuePair> {
 public:
  // Null with errno set: EINVAL beyond a limit or for what does not exist, ENOMEM, EOPNOTSUPP for
  // other transports than RC.
  [[nodiscard]] static std::shared_ptr<QueuePair> create(Context& context, ibv_pd* domain,
                                                         ibv_qp_init_attr& attributes);
  QueuePair(Context& context, ibv_pd* domain, const ibv_qp_init_attr& attributes,
            std::uint32_t number);
  ~QueuePair() override;

  [[nodiscard]] ibv_qp* verbs() { return &handle_.qp; }
  [[nodiscard]] static QueuePair* of(ibv_qp* qp) { return reinterpret_cast<Handle*>(qp)->owner; }

  int modify(const ibv_qp_attr& attributes, int mask);
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& initial);
  // The local ACK timeout that rdma_cm's program asked for, as query() says it.
  void set_timeout(std::uint8_t timeout);
  [[nodiscard]] QueuePairCounters counters();
  // For who needs more than one lock, and holds this one.
  [[nodiscard]] std::mutex& mutex() { return mutex_; }
  [[nodiscard]] QueuePairCounters counters_locked() const;
  int post_send(ibv_send_wr* request, ibv_send_wr** bad);
  int post_receive(ibv_recv_wr* request, ibv_recv_wr** bad);
  // As post_send(), all of them or none.
  int post_all(const ibv_send_wr& first);

  // For the calls of ibv_wr_post(3), of queue pairs that were made for them.
  void offer_batches(std::uint64_t operations);
  [[nodiscard]] bool takes_batches() const { return batch_ != nullptr; }
  [[nodiscard]] SendBatch& batch() { return *batch_; }
  [[nodiscard]] ibv_qp_ex* extended() { return &handle_.extended; }
  [[nodiscard]] std::uint32_t inline_bytes() const { return limits_.inline_bytes; }
  // ibv_bind_mw(3), of a window of type 1.
  int bind_window(MemoryWindow& window, ibv_mw_bind& bind);

  // Ends the connection if there is one, takes the queue pair out of every list. Afterwards only
  // calls that are under way still hold it.
  void destroy();

  // Gives the queue pair a stream whose handshake is done, and takes it to RTS. EINVAL where it has
  // one already or is in error.
  int attach(StreamSocket socket, const StreamParameters& parameters,
             std::weak_ptr<ConnectionObserver> observer);
  // For a request from the peer: how far the queue pair is, and its pairing if there is one.
  struct PairingView {
    ibv_qp_state state = IBV_QPS_RESET;
    std::shared_ptr<Pairing> pairing;
  };
  [[nodiscard]] PairingView pairing();
  // The stream of a pairing. Leaves the state as it is. EINVAL where the queue pair has moved on.
  int attach_pair(StreamSocket socket, const StreamParameters& parameters, const Pairing& pairing);
  // No stream came about: what waits for one fails.
  void fail_pairing(const Pairing& pairing);

  // To the error state, as rdma_disconnect(3) says: what is posted is flushed.
  void disconnect();

  // From a thread that polls one of our completion queues.
  void drive_inline();
  void on_ready(std::uint32_t events) override;
  void on_ready_in_wait(std::uint32_t events) override;
  void on_put_off() override;
  void on_deadline() override;
  // The shared receive queue has receives again, and this queue pair had asked for one.
  void shared_receives_posted();

  // Of IBV_QPT_UD: a datagram has come, or the socket has room again.
  void take_datagram(const Datagram& datagram);
  void datagram_room();

  // Memory is going away: returns when this queue pair has nothing more to do with it.
  void forget_memory(const std::byte* base, std::size_t length_bytes);
  void abandon_after_fork();

 private:
  struct Handle {
    union {  // the plain queue pair is the beginning of both
      ibv_qp_ex extended{};
      ibv_qp qp;
    };
    QueuePair* owner = nullptr;
  };

  // Holds the lock; on leaving, completions become visible and observers are told.
  class Turn;

  iwarp::Memory remote_memory(std::uint32_t stag, std::uint64_t offset, std::uint64_t length_bytes,
                              iwarp::RemoteRight right) override;
  iwarp::Memory local_memory(const iwarp::LocalSlice& slice, bool for_writing) override;
  bool next_receive(iwarp::ReceiveRequest& request) override;
  bool invalidate(std::uint32_t stag) override;
  void note_peer_access(const iwarp::PeerAccess& access) override;
  iwarp::Status carry_out_local() override;
  void complete_send(const iwarp::SendCompletion& completion) override;
  void complete_receive(const iwarp::ReceiveCompletion& completion) override;
  void on_peer_ready() override;
  void on_end(iwarp::EndReason reason) override;

  // A bind of a window, or without one the invalidation of binding.rkey.
  struct LocalWork {
    MemoryWindow* window = nullptr;
    MemoryWindow::Binding binding;
  };

  [[nodiscard]] Accessor accessor() const;
  int post_work(const iwarp::WorkRequest& work);
  int post_local(const ibv_send_wr& request, iwarp::WorkRequest& work);
  int open_stream(StreamSocket socket, const StreamParameters& parameters);
  void undo_create();
  void begin_pairing();
  void end_pairing();
  void release_waiting();
  void await_stream();
  void fail_waiting();
  void on_stream_over();
  void drop_waiting();
  [[nodiscard]] bool is_datagram() const { return handle_.qp.qp_type == IBV_QPT_UD; }
  int check_datagram(const ibv_send_wr& request) const;
  int post_datagram(const ibv_send_wr& request);
  [[nodiscard]] iwarp::Status gather_datagram(const ibv_send_wr& request);
  void build_datagram(const ibv_send_wr& request, UnsentDatagram& datagram);
  void send_datagrams();
  [[nodiscard]] bool transmit(const UnsentDatagram& datagram);
  void complete_datagram(std::uint64_t wr_id, iwarp::Status status, bool signaled);
  void stop_sending();
  void flush_datagrams();
  void forget_datagrams();
  [[nodiscard]] iwarp::Status place_datagram(const iwarp::ReceiveRequest& receive,
                                             const Datagram& datagram);
  void complete_datagram_receive(std::uint64_t wr_id, iwarp::Status status,
                                 const Datagram& datagram);
  [[nodiscard]] bool is_unreliable() const { return handle_.qp.qp_type == IBV_QPT_UC; }
  [[nodiscard]] bool takes_work() const;
  [[nodiscard]] bool fails_later() const;
  void hold_failed(const iwarp::SendCompletion& completion);
  [[nodiscard]] bool takes_send_immediate() const;
  int check_attributes(const ibv_qp_attr& attributes, int mask, ibv_qp_state next) const;
  int prepare(const ibv_send_wr& request, iwarp::WorkRequest& work,
              std::span<iwarp::LocalSlice> slices) const;
  int post_one(const ibv_send_wr& request);
  int accept_one(const ibv_send_wr& request);
  void count_posted(const ibv_send_wr& request);
  void count_completed(const Delivery& delivery);
  void note_credit();
  void absorb_stream_counters();
  void flush_send(const ibv_send_wr& request);
  int flush_receive(const ibv_recv_wr& request);
  void flush_receives();
  void run();
  void drive_stream(bool waiting);
  void finish_turn();
  void receives_posted();
  void keep_time();
  void tell_patience();
  [[nodiscard]] iwarp::ReceiverNotReady patience(const StreamParameters& parameters) const;
  void receive_available();
  void send_available();
  void follow_segment_size(std::size_t sent_bytes);
  bool put_off_answers(bool waiting);
  void end_put_off();
  void want_write(bool wanted);
  void on_receive_error(int error);
  void lose_stream();
  void enter_error();
  void leave_stream();
  void publish();
  void drop_pending();
  [[nodiscard]] QueueSlots& receive_slots();
  void raise(ibv_event_type type);
  void note_communication();
  void note_refusal(wire::TerminateCode code);
  void note_drained();
  [[nodiscard]] bool draining() const;
  void apply(const ibv_qp_attr& attributes, int mask);
  int change_state(ibv_qp_state next);
  void reset();

  Handle handle_;
  Context& context_;
  MemoryTable& memory_;
  std::uint32_t domain_;
  iwarp::QueueLimits limits_;
  bool signal_all_;
  CompletionQueue* send_queue_;
  CompletionQueue* receive_queue_;
  SharedReceiveQueue* shared_receives_;

  std::mutex mutex_;
  QueueSlots send_slots_;
  std::unique_ptr<SendBatch> batch_;
  ReceiveRing receives_;
  ibv_qp_attr attributes_{};
  bool destroyed_ = false;

  // Without rdma_cm, from RTR on.
  std::shared_ptr<Pairing> pairing_;
  bool awaits_cm_ = false;            // in RTR or RTS, for the stream of rdma_cm
  std::deque<LocalWork> local_work_;  // posted, and not yet carried out or flushed
  WaitingWork waiting_;               // posted while there is no stream that takes it
  bool confirmed_ = false;            // the peer has the stream as well
  bool failed_ = false;               // a request of this stream completed in error
  bool communicating_ = false;        // a message has arrived since RTR
  bool drain_notice_ = false;         // IBV_EVENT_SQ_DRAINED is asked for

  std::deque<UnsentDatagram> unsent_;  // of IBV_QPT_UD
  std::uint32_t untold_ = 0;           // datagrams that left, and no completion has told of

  StreamSocket socket_;
  std::optional<iwarp::Connection> stream_;
  std::uint64_t stream_base_ = 0;  // bytes written to the socket before the first FPDU
  std::uint64_t token_ = 0;        // with the engine
  bool writing_ = false;           // EPOLLOUT is asked for
  bool answers_put_off_ = false;
  bool holds_ = false;                                    // Sends that find no receive
  std::uint64_t alarm_ns_ = iwarp::Connection::never_ns;  // on_deadline() comes then
  bool send_markers_ = false;
  std::size_t sent_since_look_ = 0;  // at TCP's segment size
  std::weak_ptr<ConnectionObserver> observer_;
  bool ready_notice_ = false;
  bool end_notice_ = false;
  iwarp::EndReason end_reason_ = iwarp::EndReason::none;
  QueuePairCounters counters_;  // but for what the stream counts itself
  bool awaits_credit_ = false;
  std::uint64_t awaits_credit_since_ns_ = 0;
  std::vector<Delivery> pending_;
  std::vector<iovec> planned_;
};

}  // namespace weft::device
