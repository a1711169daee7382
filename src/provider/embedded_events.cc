// Functions that wait for events. A thread may be cancelled while it waits (pthread_cancel(3)), so
// nothing in these frames needs a destructor, and what may throw is in separate functions.
#include <optional>
#include <span>

#include "device/completion/channel_wait.h"
#include "device/completion/completion_queue.h"
#include "device/context.h"
#include "device/system.h"
#include "provider/embedded_parts.h"
#include "provider/guard.h"
#include "provider/process.h"

namespace weft::provider {
namespace {

using device::ChannelWait;
using device::CompletionChannel;
using device::CompletionQueue;
using device::Context;

// Returns EAGAIN if the event was withdrawn after its token was written: then wait for the next
// one.
int take_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  CompletionQueue* queue = nullptr;
  if (!CompletionChannel::of(channel)->take(queue)) return EAGAIN;
  *cq = queue->verbs();
  *cq_context = queue->verbs()->cq_context;
  return 0;
}

// EAGAIN: the thread waits by the descriptor of the channel.
int begin_channel_wait(ibv_comp_channel* channel) {
  device::Engine& engine = Context::of(channel->context)->engine();
  return ChannelWait::begin(*CompletionChannel::of(channel), engine) ? 0 : EAGAIN;
}

int take_async_event(ibv_context* context, ibv_async_event* event) {
  return Context::of(context)->take_event(*event) ? 0 : EAGAIN;
}

// Neither this function nor get_async_event() is guarded as a whole, because a cancelled thread
// unwinds through it: only the part that may throw is.
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  while (true) {
    const int failed = verbs_call<begin_channel_wait>(channel) == 0
                           ? ChannelWait::await()
                           : device::sys::await_token(channel->fd);
    if (failed != 0) return fail<Failure::minus_one, int>(failed);
    if (verbs_call<take_cq_event>(channel, cq, cq_context) == 0) return 0;
  }
}

int get_async_event(ibv_context* context, ibv_async_event* event) {
  while (true) {
    if (const int failed = device::sys::await_token(context->async_fd)) {
      return fail<Failure::minus_one, int>(failed);
    }
    if (verbs_call<take_async_event>(context, event) == 0) return 0;
  }
}

// The mutex and the count are in the public structure: a destroy function waits on the condition
// until as many events are acknowledged as were taken.
void ack_cq_events(ibv_cq* cq, unsigned events) {
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += events;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

// Null for events of a port or of the device: no destroy function waits for their acknowledgement.
ibv_context* context_of(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq->context;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp->context;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq->context;
    default:
      return nullptr;
  }
}

void ack_async_event(ibv_async_event* event) {
  if (ibv_context* context = context_of(*event)) Context::of(context)->acknowledge(*event);
}

int wait(pollfd* entries, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  // An absolute time, so that a wait that begins again does not become longer.
  std::optional<std::uint64_t> until_ns;
  if (timeout) {
    constexpr std::uint64_t ns_per_s = 1'000'000'000;
    until_ns = device::sys::now_ns() + static_cast<std::uint64_t>(timeout->tv_sec) * ns_per_s +
               static_cast<std::uint64_t>(timeout->tv_nsec);
  }
  const std::span all(entries, count);
  // The engine drives the device while the thread waits. Without a device there is nothing to
  // drive.
  device::Engine* const engine = Process::engine();
  const int ready =
      engine ? engine->wait(all, until_ns, mask) : device::sys::poll(all, until_ns, mask);
  return ready < 0 ? fail<Failure::minus_one, int>(-ready) : ready;
}

bool is_manual() {
  return Process::current().is_manual();
}

}  // namespace

void parts::events(Table& table) {
  table.get_cq_event = get_cq_event;
  table.get_async_event = get_async_event;
  table.ack_cq_events = verbs_call<ack_cq_events>;
  table.ack_async_event = verbs_call<ack_async_event>;
  table.wait = cm_call<wait>;
  table.is_manual = verbs_call<is_manual>;
}

}  // namespace weft::provider
