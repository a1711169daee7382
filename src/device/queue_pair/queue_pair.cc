#include "device/queue_pair/queue_pair.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "device/connect/linger.h"
#include "device/datagram/datagrams.h"
#include "device/limits.h"
#include "device/queue_pair/queue_pair_state.h"
#include "device/queue_pair/queue_pair_turn.h"

namespace weft::device {
namespace {

constexpr unsigned all_remote_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

bool foreign(const ibv_qp_init_attr& attributes, const ibv_context* context) {
  return (attributes.send_cq && attributes.send_cq->context != context) ||
         (attributes.recv_cq && attributes.recv_cq->context != context) ||
         (attributes.srq && attributes.srq->context != context);
}

// An iWARP adapter knows reliable connections only (RFC 5040 §2.1).
int check_type(ibv_qp_type type, bool roce) {
  if (type == IBV_QPT_RC || (roce && (type == IBV_QPT_UC || type == IBV_QPT_UD))) return 0;
  const bool known = type >= IBV_QPT_RC && type <= IBV_QPT_DRIVER;
  return known ? EOPNOTSUPP : EINVAL;
}

int check(const ibv_qp_init_attr& attributes, bool roce) {
  if (const int failed = check_type(attributes.qp_type, roce)) return failed;
  const ibv_qp_cap& cap = attributes.cap;
  if (!attributes.send_cq || !attributes.recv_cq) return EINVAL;
  if (cap.max_send_wr > limits::max_work_requests || cap.max_send_sge > limits::max_slices ||
      cap.max_inline_data > limits::max_inline_bytes) {
    return EINVAL;
  }
  if (attributes.srq) return 0;  // the receive side of the cap says nothing then
  const bool fits =
      cap.max_recv_wr <= limits::max_work_requests && cap.max_recv_sge <= limits::max_slices;
  return fits ? 0 : EINVAL;
}

}  // namespace

std::shared_ptr<QueuePair> QueuePair::create(Context& context, ibv_pd* domain,
                                             ibv_qp_init_attr& attributes) {
  int failed =
      foreign(attributes, context.verbs()) ? EINVAL : check(attributes, context.device().is_roce());
  if (failed == 0 && context.queue_pair_count() >= limits::max_queue_pairs) failed = ENOMEM;
  if (failed != 0) {
    errno = failed;
    return nullptr;
  }
  if (attributes.srq) attributes.cap.max_recv_wr = attributes.cap.max_recv_sge = 0;
  attributes.cap.max_inline_data =
      std::max(attributes.cap.max_inline_data, limits::least_inline_bytes);
  const std::uint32_t number = context.device().take_queue_pair_number();
  if (number == 0) return nullptr;
  auto made = std::make_shared<QueuePair>(context, domain, attributes, number);
  if (made->is_datagram()) failed = context.device().datagrams().add(made);
  if (failed != 0) {
    made->undo_create();
    errno = failed;
    return nullptr;
  }
  made->send_queue_->attach(made);
  made->receive_queue_->attach(made);
  context.add(made);
  if (Ledger* ledger = context.device().ledger()) ledger->add(made);
  return made;
}

QueuePair::QueuePair(Context& context, ibv_pd* domain, const ibv_qp_init_attr& attributes,
                     std::uint32_t number)
    : context_(context),
      memory_(context.memory()),
      domain_(ProtectionDomain::of(domain)->number),
      limits_{.send_requests = attributes.cap.max_send_wr,
              .send_slices = attributes.cap.max_send_sge,
              .receive_slices = attributes.cap.max_recv_sge,
              .inline_bytes = attributes.cap.max_inline_data},
      signal_all_(attributes.sq_sig_all != 0),
      send_queue_(CompletionQueue::of(attributes.send_cq)),
      receive_queue_(CompletionQueue::of(attributes.recv_cq)),
      shared_receives_(attributes.srq ? SharedReceiveQueue::of(attributes.srq) : nullptr),
      send_slots_(attributes.cap.max_send_wr),
      receives_(attributes.cap.max_recv_wr, attributes.cap.max_recv_sge) {
  handle_.owner = this;
  ibv_qp& qp = handle_.qp;
  qp.context = context.verbs();
  qp.qp_context = attributes.qp_context;
  qp.pd = domain;
  qp.send_cq = attributes.send_cq;
  qp.recv_cq = attributes.recv_cq;
  qp.srq = attributes.srq;
  qp.qp_num = number;
  qp.handle = qp.qp_num;
  // An iWARP queue pair has no RESET: it is made in IDLE.
  qp.state = context.device().is_roce() ? IBV_QPS_RESET : IBV_QPS_INIT;
  qp.qp_type = attributes.qp_type;
  pthread_mutex_init(&qp.mutex, nullptr);
  pthread_cond_init(&qp.cond, nullptr);
  attributes_.cap = attributes.cap;
  attributes_.qp_access_flags = all_remote_access;
  attributes_.port_num = 1;
  ++ProtectionDomain::of(domain)->users;
  if (shared_receives_) shared_receives_->add_user();
}

QueuePair::~QueuePair() {
  pthread_cond_destroy(&handle_.qp.cond);
  pthread_mutex_destroy(&handle_.qp.mutex);
}

void QueuePair::undo_create() {
  context_.device().give_back_queue_pair_number(handle_.qp.qp_num);
  --ProtectionDomain::of(handle_.qp.pd)->users;
  if (shared_receives_) shared_receives_->remove_user();
}

void QueuePair::destroy() {
  const auto self = shared_from_this();
  {
    const Turn turn(*this);
    destroyed_ = true;  // what happens from here on is no event, and no completion
  }
  disconnect();
  if (Ledger* ledger = context_.device().ledger()) ledger->remove(*this);
  send_queue_->detach(this);
  receive_queue_->detach(this);
  context_.remove(this);
  if (is_datagram()) context_.device().datagrams().remove(*this);
  context_.device().give_back_queue_pair_number(handle_.qp.qp_num);
  {
    const Turn turn(*this);
    drop_pending();
    observer_.reset();
  }
  send_queue_->forget(handle_.qp.qp_num);
  receive_queue_->forget(handle_.qp.qp_num);
  context_.settle_events(&handle_.qp);
  --ProtectionDomain::of(handle_.qp.pd)->users;
  if (shared_receives_) shared_receives_->remove_user();
}

int QueuePair::attach(StreamSocket socket, const StreamParameters& parameters,
                      std::weak_ptr<ConnectionObserver> observer) {
  const Turn turn(*this);
  if (destroyed_ || stream_ || handle_.qp.state == IBV_QPS_ERR) return EINVAL;
  end_pairing();
  observer_ = std::move(observer);
  handle_.qp.state = IBV_QPS_RTS;
  return open_stream(std::move(socket), parameters);
}

int QueuePair::open_stream(StreamSocket socket, const StreamParameters& parameters) {
  socket_ = std::move(socket);
  stream_base_ = socket_.written_bytes();
  const Settings& settings = context_.device().settings();
  stream_.emplace(
      iwarp::Connection::Options{.initiator = parameters.initiator,
                                 .crc = parameters.crc,
                                 .strict_crc = settings.strict_crc,
                                 .send_markers = parameters.send_markers,
                                 .acknowledge = parameters.acknowledge,
                                 .ird = parameters.ird,
                                 .wire_ord = parameters.wire_ord,
                                 .ord = parameters.ord,
                                 .rtr = parameters.rtr,
                                 .mulpdu_bytes = socket_.mulpdu_bytes(parameters.send_markers),
                                 .limits = limits_,
                                 .receiver_not_ready = patience(parameters),
                                 .unreliable = parameters.unreliable,
                                 .to_itself = parameters.to_itself,
                                 .peer = parameters.peer,
                                 .control_stag = parameters.control_stag},
      static_cast<iwarp::Host&>(*this));
  awaits_cm_ = false;
  confirmed_ = parameters.initiator;
  failed_ = false;
  writing_ = false;
  holds_ = parameters.hold_bytes > 0;
  send_markers_ = parameters.send_markers;
  sent_since_look_ = 0;
  // In RTR that is not known yet: see modify(). rdma_cm has said it in its own way.
  if (pairing_ && !is_unreliable() && handle_.qp.state == IBV_QPS_RTS) {
    stream_->announce_rnr_retries(attributes_.rnr_retry);
  }
  token_ = context_.engine().watch(socket_.fd(), EPOLLIN, shared_from_this());
  if (token_ == 0) {
    lose_stream();
    return ENOMEM;
  }
  run();
  return 0;
}

void QueuePair::disconnect() {
  const Turn turn(*this);
  if (stream_ && !stream_->ended()) {
    receive_available();
    if (!stream_->ended()) stream_->close();
  }
  enter_error();
}

void QueuePair::forget_memory(const std::byte* base, std::size_t length_bytes) {
  const std::lock_guard lock(mutex_);
  if (stream_) stream_->forget(base, length_bytes);
}

void QueuePair::abandon_after_fork() {
  // The lock may be held by a thread that does not exist in this process: nothing is locked here.
  // The engine has closed the descriptor already; the number may belong to somebody else by now.
  socket_.disown();
  if (pairing_) pairing_->abandon_after_fork();
}

// The stream has ended, or there was none: everything that is posted completes.
void QueuePair::enter_error() {
  const bool news = std::exchange(handle_.qp.state, IBV_QPS_ERR) != IBV_QPS_ERR;
  if (news && shared_receives_) raise(IBV_EVENT_QP_LAST_WQE_REACHED);
  end_pairing();
  waiting_.release([this](const iwarp::WorkRequest& request) {
    complete_send(
        {.wr_id = request.wr_id, .operation = request.operation, .status = iwarp::Status::flushed});
  });
  flush_datagrams();
  flush_receives();
  leave_stream();
}

void QueuePair::flush_receives() {
  iwarp::ReceiveRequest request;
  while (receives_.take(request)) {
    complete_receive({.wr_id = request.wr_id, .status = iwarp::Status::flushed});
  }
}

// Hands the socket over to linger with whatever it did not take yet.
void QueuePair::leave_stream() {
  end_put_off();
  if (!stream_) return;
  absorb_stream_counters();
  const iwarp::EndReason reason = stream_->end_reason();
  std::vector<std::byte> rest;
  const bool peer_gone = reason == iwarp::EndReason::peer_closed;
  if (!peer_gone) {
    for (const auto& piece : stream_->plan_send()) {
      const auto* at = static_cast<const std::byte*>(piece.iov_base);
      rest.insert(rest.end(), at, at + piece.iov_len);
    }
  }
  if (token_ != 0) context_.engine().unwatch(token_);
  token_ = 0;
  stream_.reset();
  if (!socket_.valid()) return;
  if (peer_gone) {
    socket_.close();
  } else {
    Linger::start(context_.engine(), std::move(socket_), std::move(rest));
  }
  socket_ = StreamSocket();
}

void QueuePair::publish() {
  if (pending_.empty()) return;
  if (destroyed_) return drop_pending();
  bool fits = true;
  for (const Delivery& delivery : pending_) {
    count_completed(delivery);
    fits &= (delivery.receive ? receive_queue_ : send_queue_)->push(delivery);
  }
  pending_.clear();
  if (fits || handle_.qp.state == IBV_QPS_ERR) return;
  // Whoever lost a completion cannot go on as if nothing had happened. The flushed ones are lost
  // too, unless the program polls meanwhile.
  change_state(IBV_QPS_ERR);
  raise(IBV_EVENT_QP_FATAL);
  publish();
}

void QueuePair::drop_pending() {
  for (const Delivery& delivery : pending_) delivery.free_slots();
  pending_.clear();
}

QueueSlots& QueuePair::receive_slots() {
  return shared_receives_ ? shared_receives_->slots() : receives_.slots();
}

}  // namespace weft::device
