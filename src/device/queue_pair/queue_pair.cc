// From creation to destruction, publishing completions, and the calls of progress. Other parts of
// the class: queue_pair_connection.cc, queue_pair_modify.cc, queue_pair_post.cc.
#include "device/queue_pair/queue_pair.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "device/completion/unannounced.h"
#include "device/limits.h"
#include "device/queue_pair/datagram_carrier.h"
#include "device/queue_pair/requests.h"

namespace weft::device {
namespace {

// The kernel looks handles up in the table of one open context, so an object of another context
// does not exist there: EINVAL.
bool foreign(const ibv_qp_init_attr& attributes, const ibv_context* context) {
  return (attributes.send_cq && attributes.send_cq->context != context) ||
         (attributes.recv_cq && attributes.recv_cq->context != context) ||
         (attributes.srq && attributes.srq->context != context);
}

// An iWARP adapter knows reliable connections only (RFC 5040 §2.1).
int check_type(ibv_qp_type type, bool roce) {
  if (type == IBV_QPT_RC) return 0;
  const bool offered = type == IBV_QPT_UC || type == IBV_QPT_UD || type == IBV_QPT_XRC_SEND ||
                       type == IBV_QPT_XRC_RECV;
  if (roce && offered) return 0;
  const bool known = type >= IBV_QPT_RC && type <= IBV_QPT_DRIVER;
  return known ? EOPNOTSUPP : EINVAL;
}

// The queues that the type needs. ibv_create_qp(3) needs both, also for a program that never
// receives; the two ends of XRC have one of them, and none.
bool has_queues(const ibv_qp_init_attr& attributes) {
  if (attributes.qp_type == IBV_QPT_XRC_RECV) return true;
  return attributes.send_cq && (attributes.recv_cq || attributes.qp_type == IBV_QPT_XRC_SEND);
}

// What a type does not have is ignored, and reported as 0, as Linux does it.
ibv_qp_init_attr without_unused(const ibv_qp_init_attr& given) {
  ibv_qp_init_attr attributes = given;
  const bool sender = given.qp_type == IBV_QPT_XRC_SEND;
  const bool receiver = given.qp_type == IBV_QPT_XRC_RECV;
  if (sender || receiver) {
    attributes.recv_cq = nullptr;
    attributes.srq = nullptr;
    attributes.cap.max_recv_wr = attributes.cap.max_recv_sge = 0;
  }
  if (receiver) {
    attributes.send_cq = nullptr;
    attributes.cap = {};
  }
  return attributes;
}

// Returns what is granted, which may be more than was asked for (ibv_create_qp(3)).
void round_up(ibv_qp_init_attr& attributes, const Adapter& adapter) {
  // As adapters do: some programs pass 0 and post requests of one slice.
  attributes.cap.max_send_sge = std::max(attributes.cap.max_send_sge, 1U);
  attributes.cap.max_recv_sge = std::max(attributes.cap.max_recv_sge, 1U);
  // With a shared queue the limits of the own one are ignored; reporting 0 shows that to the
  // program.
  if (attributes.srq) attributes.cap.max_recv_wr = attributes.cap.max_recv_sge = 0;
  const auto most_inline = static_cast<std::uint32_t>(adapter.most(Capability::inline_bytes));
  attributes.cap.max_inline_data =
      std::max(attributes.cap.max_inline_data, std::min(limits::least_inline_bytes, most_inline));
}

int check_wanted(const ibv_qp_init_attr& attributes, Device& device) {
  if (const int failed = check_type(attributes.qp_type, device.is_roce())) return failed;
  Adapter& adapter = device.adapter();
  const ibv_qp_cap& cap = attributes.cap;
  if (!has_queues(attributes)) return EINVAL;
  if (!adapter.grants(Capability::work_requests, cap.max_send_wr) ||
      !adapter.grants(Capability::slices, cap.max_send_sge) ||
      !adapter.grants(Capability::inline_bytes, cap.max_inline_data)) {
    return EINVAL;
  }
  if (attributes.srq) return 0;  // the receive limits are ignored then
  const bool fits = adapter.grants(Capability::work_requests, cap.max_recv_wr) &&
                    adapter.grants(Capability::slices, cap.max_recv_sge);
  return fits ? 0 : EINVAL;
}

}  // namespace

// --- From creation to destruction ----------------------------------------------------------------

// The queue pair enters the lists of others last: once it can be found, nothing can fail any more.
// `wanted` returns what was granted.
std::shared_ptr<QueuePair> QueuePair::create(Context& context, ibv_pd* domain,
                                             ibv_qp_init_attr& wanted, XrcHandle* xrc) {
  ibv_qp_init_attr attributes = without_unused(wanted);
  int failed =
      foreign(attributes, context.verbs()) ? EINVAL : check_wanted(attributes, context.device());
  if (failed == 0 && (attributes.qp_type == IBV_QPT_XRC_RECV) != (xrc != nullptr)) failed = EINVAL;
  Counted place;
  if (failed == 0) {
    place = Counted::unless_full(context.device().adapter(), Capability::queue_pairs);
    if (!place) failed = ENOMEM;
  }
  if (failed == 0) failed = context.device().fault_of(faults::Point::create_queue_pair);
  if (failed != 0) {
    errno = failed;
    return nullptr;
  }
  if (!xrc) round_up(attributes, context.device().adapter());
  wanted.cap = attributes.cap;
  const std::uint32_t number = context.device().take_queue_pair_number();
  if (number == 0) return nullptr;
  // Not make_shared(), which would not use the operators of KeptMemory.
  const std::shared_ptr<QueuePair> made(new QueuePair(context, domain, attributes, number, xrc));
  made->place_ = std::move(place);
  made->parts_.receives.set_waiter(made);
  if (made->is_datagram()) {
    auto carrier = std::make_unique<DatagramCarrier>(made->parts_, made, made);
    made->datagrams_ = carrier.get();
    made->parts_.carrier.name = "udp";
    made->carrier_ = std::move(carrier);
    // Opens the UDP port of the slot; a connected type needs no socket before its handshake.
    failed = context.device().datagrams().add(number, made);
  }
  if (failed != 0) {
    made->undo_create();
    errno = failed;
    return nullptr;
  }
  for (ibv_cq* queue : {attributes.send_cq, attributes.recv_cq}) {
    if (queue) CompletionQueue::of(queue)->attach(made);
  }
  if (xrc) xrc->domain->add(made);
  context.add(made);
  context.device().statistics_registry().add(made);
  return made;
}

QueuePair::Handle::Handle(QueuePair& queue_pair, Context& context, ibv_pd* domain,
                          const ibv_qp_init_attr& attributes, std::uint32_t number)
    : owner(&queue_pair) {
  qp.context = context.verbs();
  qp.qp_context = attributes.qp_context;
  qp.pd = domain;
  qp.send_cq = attributes.send_cq;
  qp.recv_cq = attributes.recv_cq;
  qp.srq = attributes.srq;
  qp.qp_num = number;
  // Kernel drivers number objects themselves. Here the number of the queue pair serves, since it is
  // unique in the process.
  qp.handle = number;
  qp.qp_type = attributes.qp_type;
  pthread_mutex_init(&qp.mutex, nullptr);
  pthread_cond_init(&qp.cond, nullptr);
}

QueuePair::Handle::~Handle() {
  pthread_cond_destroy(&qp.cond);
  pthread_mutex_destroy(&qp.mutex);
}

QueuePair::QueuePair(Context& context, ibv_pd* domain, const ibv_qp_init_attr& attributes,
                     std::uint32_t number, XrcHandle* xrc)
    : handle_(*this, context, domain, attributes, number),
      signal_all_(attributes.sq_sig_all != 0),
      missing_(missing_operations(context.device().adapter())),
      parts_(context, handle_.qp, attributes),
      search_(parts_),
      xrc_(xrc) {
  handle_.qp.state = initial_state();
  // ibv_dealloc_pd(3), ibv_destroy_srq(3) and ibv_close_xrcd(3) fail with EBUSY while these counts
  // are not 0.
  if (domain) ++ProtectionDomain::of(domain)->users;
  if (xrc_) {
    ++xrc_->users;
    parts_.receives.set_domain(xrc_->domain);
  }
  if (SharedReceiveQueue* shared = parts_.receives.shared()) shared->add_user();
}

QueuePair::~QueuePair() {
  Unannounced::note(wakes_itself_, true);
}

// An iWARP queue pair has no RESET: it is made in IDLE.
ibv_qp_state QueuePair::initial_state() const {
  return context().device().is_roce() ? IBV_QPS_RESET : IBV_QPS_INIT;
}

// Gives back what the constructor and create() have taken.
void QueuePair::undo_create() {
  context().device().give_back_queue_pair_number(handle_.qp.qp_num);
  place_.release();
  if (handle_.qp.pd) --ProtectionDomain::of(handle_.qp.pd)->users;
  if (xrc_) --xrc_->users;
  if (SharedReceiveQueue* shared = parts_.receives.shared()) shared->remove_user();
}

// The order matters. From `destroyed` on, new completions and events are dropped. Then the
// connection ends and sends the answers that are due, and no list leads here any more. What the
// completion queues still hold is removed next, and the number is given back last, when nothing
// refers to it.
void QueuePair::destroy() {
  const auto self = shared_from_this();
  {
    const QueuePairLock lock(mutex_);
    parts_.destroyed = true;
  }
  disconnect();
  for (ibv_cq* queue : {handle_.qp.send_cq, handle_.qp.recv_cq}) {
    if (queue) CompletionQueue::of(queue)->detach(this);
  }
  if (xrc_) xrc_->domain->remove(*this);
  context().remove(this);
  if (is_datagram()) context().device().datagrams().remove(handle_.qp.qp_num, *this);
  {
    const QueuePairLock lock(mutex_);
    parts_.completions.drop();
    parts_.completions.withdraw();
    parts_.notices.observer.reset();
  }
  // With what was removed just now.
  context().device().statistics_registry().remove(*this);
  // Waits until the program has acknowledged its events of this queue pair, as
  // ibv_get_async_event(3) demands of a destruction.
  context().settle_events(&handle_.qp);
  undo_create();
}

// Events name the handle of the creator, as long as the queue pair lives.
ibv_qp* QueuePair::open_handle(Context& context, void* user_context) {
  ibv_qp_init_attr attributes{};
  attributes.qp_context = user_context;
  attributes.qp_type = handle_.qp.qp_type;
  auto made = std::make_unique<Handle>(*this, context, nullptr, attributes, handle_.qp.qp_num);
  const QueuePairLock lock(mutex_);
  made->qp.state = handle_.qp.state;
  more_.open.push_back(std::move(made));
  ++context.objects;
  return &more_.open.back()->qp;
}

void QueuePair::close_handle(ibv_qp* handle) {
  {
    const QueuePairLock lock(mutex_);
    if (handle == &handle_.qp) {
      more_.first_closed = true;
    } else {
      --Context::of(handle->context)->objects;
      std::erase_if(more_.open, [&](const auto& one) { return &one->qp == handle; });
    }
    if (!more_.first_closed || !more_.open.empty()) return;
  }
  destroy();
}

void QueuePair::abandon_after_fork() {
  // The lock may be held by a thread that does not exist in this process, so it begins anew: calls
  // of the program must not wait for that thread.
  std::construct_at(&mutex_);
  for (ibv_cq* queue : {handle_.qp.send_cq, handle_.qp.recv_cq}) {
    if (queue) CompletionQueue::of(queue)->abandon_after_fork();
  }
  parts_.shared = {};
  // What a carrier shares with its peer is not mapped in this process, so that nothing may use it,
  // its destructor included: requests are refused, and the carrier's memory is left where it is.
  if (carrier_) {
    carrier_->abandon_after_fork();
    static_cast<void>(carrier_.release());
  }
  search_.abandon_after_fork();
  handle_.qp.state = IBV_QPS_RESET;
}

// --- Completions ---------------------------------------------------------------------------------

// What was received is processed by now, and the answers to it are written; only then do
// completions become visible, because the program may exit right after it has seen its last one.
// Releases the lock before it notifies the observer of the connection.
void QueuePair::settle_all(QueuePairLock& lock, DirectPoll* poll) {
  if (carrier_ && carrier_->ended(lock)) on_carrier_ended(lock);
  publish(lock, poll);
  if (due_event_ && parts_.completions.empty()) raise_due(lock);
  // The observer (a connection manager) takes locks of its own, so it is called without this one.
  ConnectionNotices& notices = parts_.notices;
  if (!notices.ready && !notices.ended) return;
  const bool ready = std::exchange(notices.ready, false);
  const bool ended = std::exchange(notices.ended, false);
  const iwarp::EndReason reason = notices.reason;
  const auto observer = notices.observer.lock();
  lock.unlock();
  if (!observer) return;
  if (ready) observer->on_stream_ready();
  if (ended) observer->on_stream_ended(reason);
}

void QueuePair::publish(QueuePairLock& lock, DirectPoll* poll) {
  Completions& completions = parts_.completions;
  if (completions.empty()) return;
  // The program has called ibv_destroy_qp(3) and expects nothing more.
  if (parts_.destroyed) return completions.drop();
  const Completions::Published published = completions.publish(poll);
  if (published == Completions::Published::all) [[likely]]
    return;
  // A queue pair that has lost a completion fails: its program cannot know what has completed. The
  // flushed completions are lost as well, unless the program polls meanwhile.
  if (published == Completions::Published::lost && handle_.qp.state != IBV_QPS_ERR) {
    change_state(IBV_QPS_ERR, lock);
    parts_.raise(IBV_EVENT_QP_FATAL);
    (void)completions.publish();
  }
  if (const auto alarm_ns = completions.new_alarm_ns()) {
    context().engine().call_at(*alarm_ns, shared_from_this());
  }
}

CarrierNote QueuePair::carrier_note() {
  const QueuePairLock lock(mutex_);
  return parts_.carrier;
}

RefusedAccess QueuePair::refused_access() {
  const QueuePairLock lock(mutex_);
  return parts_.refused;
}

QueuePairCounters QueuePair::counters() {
  const QueuePairLock lock(mutex_);
  return counters_locked();
}

// Carriers and pairings hand over their counts only when they end, so the counts of those that live
// are added to a copy.
QueuePairCounters QueuePair::counters_locked() const {
  QueuePairCounters now = parts_.completions.counters();
  if (carrier_) carrier_->add_counters(now);
  if (const auto& pairing = search_.pairing()) now.connection_retries += pairing->retries();
  return now;
}

LiveQueuePair QueuePair::live_locked() {
  LiveQueuePair live{.peer = parts_.end.peer,
                     .send_depth = parts_.completions.send_slots().taken(),
                     .send_size = parts_.completions.send_slots().capacity(),
                     .receive_depth = parts_.receives.slots().taken(),
                     .receive_size = parts_.receives.slots().capacity(),
                     .shared_receives = parts_.receives.shared() != nullptr,
                     .awaits_connection = !carrier_ && !parts_.waiting.empty(),
                     .waits = carrier_ ? carrier_->waits() : Carrier::Waits{}};
  const RequestLatencies* latencies =
      parts_.observation ? parts_.observation->watch.latencies() : nullptr;
  if (!latencies) return live;
  live.room_wait_ns = latencies->room_wait_ns(TraceFile::now_ns());
  for (std::size_t kind = 0; kind < latency_kinds; ++kind) {
    const auto* histogram = latencies->of(static_cast<LatencyKind>(kind));
    if (!histogram) continue;
    for (std::size_t bucket = 0; const std::uint64_t count : histogram->counts()) {
      if (count != 0) live.latencies[kind].emplace_back(bucket, count);
      ++bucket;
    }
  }
  return live;
}

// A queue pair without a trace and rules is observed only meanwhile, so that its data path is as
// before afterwards.
void QueuePair::watch_latencies_locked(bool wanted) {
  if (wanted && !handle_.qp.send_cq) return;  // XRC_RECV: it has no requests
  if (wanted) {
    RequestWatch& watch = parts_.begin_observation().watch;
    const QueueSlots& slots = parts_.completions.send_slots();
    watch.take_latencies(CompletionQueue::of(handle_.qp.send_cq)->unfinished(slots));
    if (carrier_) watch.waits(QueuePairTrace::Wait::room, carrier_->waits().room);
  } else if (parts_.observation) {
    parts_.observation->watch.leave_latencies();
    parts_.end_observation();
  }
}

// --- Progress ------------------------------------------------------------------------------------

void QueuePair::drive(Occasion occasion) {
  QueuePairLock lock(mutex_);
  if (carrier_) carrier_->drive(occasion, lock);
  settle(lock);
}

void QueuePair::on_ready(std::uint32_t /*events*/) {
  drive(Occasion::ready);
}

void QueuePair::on_ready_in_wait(std::uint32_t /*events*/) {
  drive(Occasion::waiting);
}

void QueuePair::on_ready_between_polls(std::uint32_t /*events*/) {
  drive(Occasion::between_polls);
}

void QueuePair::prefetch() const {
  weft::prefetch(this, sizeof *this);
  carrier_memory_.prefetch();
}

void QueuePair::on_deferred() {
  drive(Occasion::deferred);
}

void QueuePair::on_deadline() {
  drive(Occasion::deadline);
}

void QueuePair::drive_inline(DirectPoll* poll) {
  // A UDP socket belongs to the slot: it may have datagrams for other queue pairs, and takes their
  // locks. There is one for each address and one for groups, so that one call that finds the ready
  // ones is cheaper than asking each.
  if (is_datagram()) {
    send_gathered(poll);
    context().engine().poll();
    return;
  }
  const Attention attention(*this);
  bool waits = false;
  {
    // Another thread that has the lock drives already; the next poll finds what it brings in.
    QueuePairLock lock(mutex_, std::try_to_lock);
    if (!lock.owns() || (carrier_ && carrier_->poll_promptly(poll, lock))) return;
    // Engine::poll() may call this queue pair, so it is called after the lock is released.
    waits = drive_for_poll(lock, poll);
  }
  if (waits) context().engine().poll();
}

// Of a datagram queue pair. Engine::poll() takes its lock again.
void QueuePair::send_gathered(DirectPoll* poll) {
  QueuePairLock lock(mutex_, std::try_to_lock);
  // A child of fork(2) has no carrier.
  if (!lock.owns() || !carrier_) return;
  carrier_->drive(Occasion::polled, lock);
  settle(lock, poll);
}

// Returns whether only the engine's poll() brings about the connection, because there is no
// progress thread. Not inline: most polls do not come here, and need fewer registers.
[[gnu::noinline]] bool QueuePair::drive_for_poll(QueuePairLock& lock, DirectPoll* poll) {
  const bool waits = !carrier_ && search_.pairing();
  if (carrier_) carrier_->drive(Occasion::polled, lock);
  settle(lock, poll);
  return waits && context().engine().mode() == ProgressMode::manual;
}

void QueuePair::note_steady_polling() {
  const QueuePairLock lock(mutex_, std::try_to_lock);
  if (lock.owns() && carrier_) carrier_->note_steady_polling(lock);
}

void QueuePair::look_inline() {
  if (!wakes_itself_.load(std::memory_order_acquire)) drive_inline();
}

// Programs arm for each event, so the carriers that need no call here cost no lock.
void QueuePair::expect_event(bool solicited_only) {
  // A stale value does no harm: a carrier that needs this call begins as if the queue were armed.
  // See LocalCarrier::leave_tcp().
  if (wakes_itself_.load(std::memory_order_acquire)) return;
  QueuePairLock lock(mutex_);
  if (carrier_) carrier_->expect_event(solicited_only, lock);
  settle(lock);
}

void QueuePair::begin_look() {
  if (wakes_itself_.load(std::memory_order_acquire)) return;
  const QueuePairLock lock(mutex_);
  if (carrier_) carrier_->begin_look(lock);
}

void QueuePair::end_look() {
  if (wakes_itself_.load(std::memory_order_acquire)) return;
  QueuePairLock lock(mutex_);
  if (carrier_) carrier_->end_look(lock);
  settle(lock);
}

void QueuePair::shared_receives_posted() {
  QueuePairLock lock(mutex_);
  if (carrier_) carrier_->receives_posted(lock);
  settle(lock);
}

void QueuePair::take_datagram(const Datagram& datagram) {
  QueuePairLock lock(mutex_);
  // A receive that could not be filled is a local error of the receive queue: the queue pair fails.
  if (!datagrams_->take(datagram, lock)) enter_error(lock);
  settle(lock);
}

void QueuePair::datagram_room() {
  QueuePairLock lock(mutex_);
  carrier_->advance(lock);
  settle(lock);
}

// The lock alone has an effect, too: after it no thread of this process can be placing into the
// region through this queue pair.
void QueuePair::forget_memory(const std::byte* base, std::size_t length_bytes) {
  QueuePairLock lock(mutex_);
  if (carrier_) carrier_->forget_memory(base, length_bytes, lock);
}

void QueuePair::forget_receive_queue(SharedReceiveQueue& queue) {
  const QueuePairLock lock(mutex_);
  parts_.forget_receive_queue(queue);
}

}  // namespace weft::device
