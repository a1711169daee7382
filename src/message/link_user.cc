// The calls of the application: sending, memory, receiving, disconnecting, and queries.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "message/link.h"

namespace weft::message::detail {

void Link::check_thread() const {
  if (loop_) loop_->check_thread();
}

// --- Sending -------------------------------------------------------------------------------------

std::size_t Link::waiting_messages() const {
  return early_.messages() + (session_ ? session_->waiting_messages() : 0);
}

std::uint64_t Link::waiting_bytes() const {
  return early_.bytes() + (session_ ? session_->waiting_bytes() : 0);
}

// Why a message of this length cannot be taken: an errno, or 0. A message that finds the queue
// empty is taken whatever its length.
int Link::send_error(std::uint64_t bytes) {
  const bool established = state_ == State::established && !end_;
  const bool early = !established && queues_early();
  if (!early && !established) return ENOTCONN;
  // The lower limit of the two sides, as their greetings have named them.
  if (bytes > (early ? limits_.max_message_bytes : max_message_bytes())) return EMSGSIZE;
  const std::size_t waiting = waiting_messages();
  const std::uint64_t room =
      limits_.send_queue_bytes - std::min(limits_.send_queue_bytes, waiting_bytes());
  if (waiting >= limits_.send_queue_messages || (waiting > 0 && bytes > room)) {
    send_refused_ = true;
    return EAGAIN;
  }
  return 0;
}

// Queues the message, and posts it at once if no Send is under way, or if those that wait fill a
// frame. Otherwise it shares a frame with others, in the turn that follows. So it does where
// messages of another connection wait for that turn already: a program that sends some messages on
// each of many connections needs one frame for each of them, and not two. That frame leaves when
// the program goes on to the next connection.
Sending Link::enqueue(std::shared_ptr<Record> record, const SendOptions& options) {
  record->type = options.type;
  record->tag = options.tag;
  record->confirm = options.confirm;
  if (queues_early()) {
    early_.add(record);
    return Sending(std::move(record));
  }
  session_->enqueue(record);
  if (turns_.inside) return Sending(std::move(record));
  loop_->note_send(*this);
  const bool nothing_before = send_slots_.under_way() == 0 && !loop_->sends_wait();
  if (nothing_before || session_->fills_frame()) {
    post_work();
  } else if (!std::exchange(turns_.queued, true)) {
    loop_->ready_to_send(shared_from_this());
  }
  return Sending(std::move(record));
}

// What can be found wrong with an early message only now: an errno, or 0. Moves its copy into a
// block of the pool.
int Link::prepare_early(Record& record) {
  if (record.bytes > max_message_bytes()) return EMSGSIZE;
  Pool& pool = *transport_.device()->pool;
  if (record.block && record.block->pool != &pool) return EINVAL;
  if (record.early.empty()) return 0;
  try {
    record.block = pool.take(record.early.size());
  } catch (const Error& error) {
    return error.error_number();
  }
  std::ranges::copy(record.early, record.block->data);
  record.pieces.push_back({record.block->data, record.early.size(), record.block->lkey});
  record.early = {};
  return 0;
}

// Messages from before the connection was established go first, in their order.
void Link::send_early() {
  while (auto record = early_.take()) {
    if (const int error = prepare_early(*record)) {
      session_->refuse(std::move(record), error);
    } else {
      session_->enqueue(std::move(record));
    }
  }
  if (early_.closes()) return disconnect_after_sending();
  post_work();
}

// A longer message is copied into a block of the pool, which is registered already.
Sending Link::send_copy(std::span<const std::byte> bytes, const SendOptions& options) {
  if (const int error = send_error(bytes.size())) return Sending(error);
  auto record = loop_->sends().records().take(*this);
  record->bytes = bytes.size();
  if (!transport_.device()) {
    record->early.assign(bytes.begin(), bytes.end());
  } else if (bytes.size() <= Record::short_bytes) {
    std::ranges::copy(bytes, record->copy.begin());
    if (!bytes.empty()) record->pieces.push_back({record->copy.data(), bytes.size(), 0});
  } else {
    record->block = transport_.device()->pool->take(bytes.size());
    std::memcpy(record->block->data, bytes.data(), bytes.size());
    record->pieces.push_back({record->block->data, bytes.size(), record->block->lkey});
  }
  return enqueue(std::move(record), options);
}

// The record shares the buffer's block, so the application may destroy the buffer. Memory of
// another device is not registered for this queue pair.
Sending Link::send_buffer(const Buffer& buffer, const SendOptions& options) {
  if (const int error = send_error(buffer.size_bytes())) return Sending(error);
  auto record = loop_->sends().records().take(*this);
  record->bytes = buffer.size_bytes();
  if (record->bytes > 0) {
    const auto& device = transport_.device();
    if (device && buffer.block_->pool != device->pool.get()) return Sending(EINVAL);
    record->block = buffer.block_;
    record->pieces.push_back({buffer.data_, record->bytes, buffer.block_->lkey});
  }
  return enqueue(std::move(record), options);
}

// Empty pieces are dropped: an OFFER must not contain them.
Sending Link::send_pieces(std::span<const LocalSlice> pieces, const SendOptions& options) {
  std::uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size_bytes();
  if (const int error = send_error(bytes)) return Sending(error);
  auto record = loop_->sends().records().take(*this);
  record->bytes = bytes;
  for (const auto& piece : pieces) {
    if (piece.size_bytes() == 0) continue;
    record->pieces.push_back(
        {reinterpret_cast<std::byte*>(piece.address()), piece.size_bytes(), piece.lkey()});
  }
  // Counted after empty pieces are dropped.
  if (record->pieces.size() > max_pieces) return Sending(EINVAL);
  return enqueue(std::move(record), options);
}

bool Link::writable() const {
  return ((state_ == State::established && !end_) || queues_early()) &&
         waiting_messages() < limits_.send_queue_messages &&
         waiting_bytes() < limits_.send_queue_bytes;
}

std::uint64_t Link::max_message_bytes() const {
  if (!was_established_) return 0;
  return std::min(limits_.max_message_bytes, session_->peer_terms().max_message_bytes);
}

// --- Memory --------------------------------------------------------------------------------------

Buffer Link::allocate(std::size_t bytes) {
  if (!transport_.device())
    throw Error(ENOTCONN, "the device of a connection is known when it is established");
  auto block = transport_.device()->pool->take(std::max<std::size_t>(bytes, 1));
  std::byte* data = block->data;
  return {std::move(block), data, bytes};
}

const verbs::ProtectionDomain& Link::domain() const {
  if (!transport_.device())
    throw Error(ENOTCONN, "the device of a connection is known when it is established");
  return transport_.device()->domain;
}

// --- Receiving -----------------------------------------------------------------------------------

// Works after the end as well: then there is no receive to post again.
std::optional<Received> Link::receive() {
  if (!session_ || !session_->has_ready()) return std::nullopt;
  InMessage message = session_->take();
  Received received = take_message(message);
  ++statistics_.messages_received;
  statistics_.bytes_received += message.bytes;
  session_->handed_over(message);
  if (!loop_ || end_) return received;
  // The caller may hold the message as long as it likes: its memory counts as kept.
  if (message.pieces.empty()) transport_.device()->pool->count(*received.buffer_.block_);
  release_receive(message, {});
  post_work();
  loop_->ready(shared_from_this());
  return received;
}

// --- The end -------------------------------------------------------------------------------------

// Messages that have arrived are not delivered any more.
void Link::disconnect() {
  if (!loop_ || end_) return;
  // Set before the end is noted, so that no handler is called for a message in between.
  discard_ = true;
  end(Ending::By::us, was_established_ ? ECONNABORTED : ECANCELED,
      was_established_ ? "" : "disconnected before there was a connection");
}

// The session sends CLOSE after the last message; the completion of its Send ends the connection.
void Link::disconnect_after_sending() {
  if (!loop_ || end_ || state_ == State::disconnecting) return;
  if (!was_established_ && early_.messages() > 0) return early_.close_after_them();
  if (!was_established_) return disconnect();
  state_ = State::disconnecting;
  session_->close();
  post_work();
}

// --- Queries -------------------------------------------------------------------------------------

Statistics Link::statistics() const {
  Statistics statistics = statistics_;
  statistics.messages_waiting = waiting_messages();
  if (!session_) return statistics;
  statistics.credit_waits = session_->credit_wait().count();
  statistics.waited_for_credits = session_->credit_wait().total(steady_now());
  return statistics;
}

std::string Link::local_address() const {
  return transport_.id() ? transport_.id()->local_address() : std::string();
}

std::string Link::peer_address() const {
  return transport_.id() ? transport_.id()->peer_address() : std::string();
}

// --- Coroutines ----------------------------------------------------------------------------------

// Without a loop the connection has ended; the wait then needs neither timer nor stop.
std::shared_ptr<Suspension> Link::suspension(Deadline deadline, std::stop_token stop) {
  return std::make_shared<Suspension>(loop_ ? loop_->weak_from_this() : std::weak_ptr<LoopCore>(),
                                      deadline, std::move(stop));
}

void Link::await(std::shared_ptr<Suspension> suspension, std::function<bool()> ready) {
  waiters_.add(std::move(suspension), std::move(ready));
}

void Link::set_handlers(Handlers handlers) {
  if (!loop_) return;
  handlers_ = std::make_shared<const Handlers>(std::move(handlers));
  loop_->ready(shared_from_this());  // messages may wait for a handler
}

}  // namespace weft::message::detail
