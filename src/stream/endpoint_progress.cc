// What happens by itself: completions, control messages, the pump, and who is told.
#include <algorithm>
#include <array>

#include "stream/endpoint.h"

namespace weft::stream::detail {
namespace {

int errno_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_WR_FLUSH_ERR:
      return ECONNRESET;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return ETIMEDOUT;
    default:
      return EPROTO;
  }
}

}  // namespace

bool Endpoint::process() {
  if (!flow_) return false;
  const bool any = wire_->queue().for_each(
                       [this](const verbs::Completion& completion) { handle(completion); }) > 0;
  if (!any) return false;
  push_control();
  if (sleepers_ > 0) changed_.notify_all();
  return true;
}

void Endpoint::handle(const verbs::Completion& completion) {
  if (completion.ok()) {
    heard_ = Clock::now();
  } else {
    break_off(errno_of(completion.status()));
  }
  const Posted posted = Posted::from_id(completion.id());
  switch (posted.what) {
    case Posted::What::receive:
      if (completion.ok()) received(completion, posted.number);
      break;
    case Posted::What::data:
      flow_->sent(posted.number);
      break;
    case Posted::What::control:
      flow_->control_sent();
      break;
    case Posted::What::probe:
      probed_.reset();
      statistics_.answered_probes += completion.ok();
      break;
    case Posted::What::ignored:
      break;
  }
}

void Endpoint::received(const verbs::Completion& completion, std::uint32_t slot) {
  const auto immediate = completion.immediate();
  const bool by_immediate = wire_->variant() == Variant::immediate;
  if (immediate.has_value() != by_immediate ||
      (!by_immediate && completion.size_bytes() != sizeof(std::uint32_t))) {
    violated();
    return;
  }
  const std::uint32_t word = by_immediate ? *immediate : wire_->word_in(slot);
  std::optional<std::uint32_t> bytes;
  if (by_immediate) bytes = completion.size_bytes();
  if (const int failed = wire_->post_receive(slot)) break_off(failed);
  if (!flow_->received(word, bytes)) {
    violated();
    return;
  }
  if (is_update(word)) {
    const Update update = update_of(word);
    statistics_.updates_received += update.bytes > 0 || update.receives > 0;
  } else if (kind_of(word) == Kind::data) {
    ++statistics_.data_messages_received;
    statistics_.bytes_received += value_of(word);
  } else if (kind_of(word) == Kind::map) {
    if (value_of(word) >= theirs_.size()) {
      violated();
    } else {
      const auto row = MapRow::from_bytes(wire_->row(value_of(word)));
      theirs_.set(value_of(word), Mapping::of(row));
    }
  }
}

void Endpoint::push_control() {
  while (broken_ == 0) {
    const auto word = flow_->next_control();
    if (!word) return;
    if (const int failed = wire_->post_control(*word)) {
      flow_->control_sent();
      break_off(failed);
      return;
    }
    const Update update = update_of(*word);
    statistics_.updates_sent += is_update(*word) && (update.bytes > 0 || update.receives > 0);
  }
}

void Endpoint::break_off(int error) {
  if (broken_ != 0) return;
  broken_ = error;
  changed_.notify_all();
}

void Endpoint::violated() {
  break_off(EPROTO);
  disconnect();
}

void Endpoint::disconnect() {
  if (!id_ || disconnected_ || phase_ == Phase::idle || phase_ == Phase::resolving) return;
  disconnected_ = true;
  try {
    id_->disconnect();
  } catch (const Error&) {
    // The peer was first, or there is no connection yet.
  }
}

// --- Who polls -----------------------------------------------------------------------------------

bool Endpoint::needs_pump() const {
  return sleepers_ > 0 || descriptor_ || !watchers_.empty() || queue_ || probed_ ||
         (flow_ && flow_->control_waits());
}

void Endpoint::arm() {
  if (armed_ || !flow_ || broken_ != 0) return;
  armed_ = true;
  wire_->queue().arm();
  process();  // what came before raises no event
}

void Endpoint::attend() noexcept {
  const Lock lock(mutex_);
  if (!pump_) return;  // closed meanwhile
  try {
    while (wire_ && wire_->channel().wait(Deadline::now())) armed_ = false;
    process();
    look_at_connection();
    look_for_life();
    leave();
  } catch (const Error& error) {
    fail_connecting(error.error_number(), error.what());
    break_off(error.error_number());
    tell();
  } catch (...) {
    break_off(ENOMEM);
  }
}

void Endpoint::look_for_life() {
  if (phase_ != Phase::open || !options_.keepalive || broken_ != 0 || closed_) return;
  const auto now = Clock::now();
  const Keepalive& keepalive = *options_.keepalive;
  if (probed_ && now - *probed_ >= keepalive.interval * keepalive.probes) {
    break_off(ETIMEDOUT);
    disconnect();
    return;
  }
  if (!probed_ && now - heard_ >= keepalive.idle) {
    if (const int failed = wire_->post_probe()) {
      break_off(failed);
      return;
    }
    probed_ = now;
  }
  const auto next =
      probed_ ? *probed_ + keepalive.interval * keepalive.probes : heard_ + keepalive.idle;
  if (next_look_ && *next_look_ <= next && *next_look_ > now) return;
  next_look_ = next;
  pump_->wake_at(token_, next);
}

bool Endpoint::sleep(Lock& lock, const Deadline& deadline) {
  const int timeout_ms = deadline.poll_timeout_ms();
  if (timeout_ms < 0) {
    changed_.wait(lock);
    return true;
  }
  changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms));
  return !deadline.passed();
}

// --- Who is told ---------------------------------------------------------------------------------

void Endpoint::leave() {
  if (needs_pump()) arm();
  tell();
}

Stream::Readiness Endpoint::readiness_now() const {
  Stream::Readiness ready;
  const bool over = closed_ || failure_ != 0 || broken_ != 0;
  ready.readable = over || (flow_ && (flow_->readable() > 0 || flow_->end_seen()));
  ready.writable = over || can_send() || (flow_ && flow_->finished());
  ready.settled = !is_connecting();
  ready.over = over;
  ready.ended = flow_ && flow_->end_seen();
  ready.arrived_bytes = statistics_.bytes_received;
  return ready;
}

bool Endpoint::descriptor_wanted() const {
  const bool end_seen = flow_ && flow_->end_seen();
  const bool lost = failure_ != 0 || (broken_ != 0 && !end_seen);
  return (flow_ && flow_->readable() > 0) || (end_seen && !end_told_) || lost || closed_ ||
         (send_refused_ && (can_send() || send_error() != 0)) ||
         (!settled_told_ && phase_ != Phase::idle && !is_connecting());
}

void Endpoint::tell() {
  if (descriptor_) descriptor_->set(descriptor_wanted());
  const auto ready = readiness_now();
  if (ready != told_) {
    told_ = ready;
    for (Stream::Watcher* watcher : watchers_) watcher->changed(ready);
  }
  if (!queue_ || closed_) return;
  if (!queued_settled_ && (phase_ == Phase::open || failure_ != 0)) {
    queued_settled_ = true;
    queue_->push({.type = failure_ != 0 ? EventType::failed : EventType::connected,
                  .cookie = cookie_,
                  .error_number = failure_});
  }
  const bool end_seen = flow_ && flow_->end_seen();
  if (!queued_shutdown_ && phase_ == Phase::open && (end_seen || broken_ != 0)) {
    queued_shutdown_ = true;
    queue_->push(
        {.type = EventType::shutdown, .cookie = cookie_, .error_number = end_seen ? 0 : broken_});
  }
}

// --- Waiting from outside ------------------------------------------------------------------------

int Endpoint::fd() {
  const Lock lock(mutex_);
  if (!descriptor_) descriptor_ = std::make_unique<EventFd>();
  process();
  leave();
  return descriptor_->fd();
}

Stream::Readiness Endpoint::watch(Stream::Watcher* watcher) {
  const Lock lock(mutex_);
  watchers_.push_back(watcher);
  process();
  leave();
  watcher->changed(told_);
  return told_;
}

void Endpoint::unwatch(Stream::Watcher* watcher) {
  const Lock lock(mutex_);
  std::erase(watchers_, watcher);
}

Stream::Readiness Endpoint::readiness() {
  const Lock lock(mutex_);
  process();
  leave();
  return readiness_now();
}

void Endpoint::attach(std::shared_ptr<Events> events, std::uint64_t cookie) {
  const Lock lock(mutex_);
  queue_ = std::move(events);
  cookie_ = cookie;
  process();
  leave();
}

}  // namespace weft::stream::detail
