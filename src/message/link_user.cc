// What a user asks of a connection.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "message/link.h"

namespace weft::message::detail {

void Link::check_thread() const {
  if (loop_) loop_->check_thread();
}

// --- Sending -------------------------------------------------------------------------------------

int Link::why_not(std::uint64_t bytes) {
  if (state_ != State::established || end_) return ENOTCONN;
  if (bytes > max_message_bytes()) return EMSGSIZE;
  const std::size_t waiting = session_->waiting_messages();
  const std::uint64_t room =
      limits_.send_queue_bytes - std::min(limits_.send_queue_bytes, session_->waiting_bytes());
  if (waiting >= limits_.send_queue_messages || (waiting > 0 && bytes > room)) {
    refused_ = true;
    return EAGAIN;
  }
  return 0;
}

Sending Link::take(std::shared_ptr<Record> record, const SendOptions& options) {
  record->type = options.type;
  record->tag = options.tag;
  record->confirm = options.confirm;
  record->link = weak_from_this();
  session_->enqueue(record);
  // Where others are under way, their completions lead to the next turn, which posts a list.
  constexpr std::size_t at_once = 8;
  if (!in_turn_ && under_way_.size() - free_headers_.size() < at_once) pump();
  return Sending(std::move(record));
}

Sending Link::send_copy(std::span<const std::byte> bytes, const SendOptions& options) {
  if (const int no = why_not(bytes.size())) return Sending(no);
  auto record = std::make_shared<Record>();
  record->bytes = bytes.size();
  if (!bytes.empty()) {
    record->block = device_->pool->take(bytes.size());
    std::memcpy(record->block->data, bytes.data(), bytes.size());
    record->pieces.push_back({record->block->data, bytes.size(), record->block->lkey});
  }
  return take(std::move(record), options);
}

Sending Link::send_buffer(const Buffer& buffer, const SendOptions& options) {
  if (const int no = why_not(buffer.size_bytes())) return Sending(no);
  auto record = std::make_shared<Record>();
  record->bytes = buffer.size_bytes();
  if (record->bytes > 0) {
    if (buffer.block_->pool != device_->pool.get()) return Sending(EINVAL);
    record->block = buffer.block_;
    record->pieces.push_back({buffer.data_, record->bytes, buffer.block_->lkey});
  }
  return take(std::move(record), options);
}

Sending Link::send_pieces(std::span<const LocalSlice> pieces, const SendOptions& options) {
  std::uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size_bytes();
  if (const int no = why_not(bytes)) return Sending(no);
  auto record = std::make_shared<Record>();
  record->bytes = bytes;
  for (const auto& piece : pieces) {
    if (piece.size_bytes() == 0) continue;
    record->pieces.push_back(
        {reinterpret_cast<std::byte*>(piece.address()), piece.size_bytes(), piece.lkey()});
  }
  if (record->pieces.size() > max_pieces) return Sending(EINVAL);
  return take(std::move(record), options);
}

bool Link::writable() const {
  return state_ == State::established && !end_ &&
         session_->waiting_messages() < limits_.send_queue_messages &&
         session_->waiting_bytes() < limits_.send_queue_bytes;
}

std::uint64_t Link::max_message_bytes() const {
  if (!was_established_) return 0;
  return std::min(limits_.max_message_bytes, session_->peer_terms().max_message_bytes);
}

// --- Memory --------------------------------------------------------------------------------------

Buffer Link::allocate(std::size_t bytes) {
  if (!device_) throw Error(ENOTCONN, "the device of a connection is known when it is established");
  auto block = device_->pool->take(std::max<std::size_t>(bytes, 1));
  std::byte* data = block->data;
  return {std::move(block), data, bytes};
}

const verbs::ProtectionDomain& Link::domain() const {
  if (!device_) throw Error(ENOTCONN, "the device of a connection is known when it is established");
  return device_->domain;
}

// --- Receiving -----------------------------------------------------------------------------------

std::optional<Received> Link::receive() {
  if (!session_ || !session_->has_ready()) return std::nullopt;
  InMessage message = session_->take();
  Received received = take_message(message);
  ++counted_.messages_received;
  counted_.bytes_received += message.bytes;
  session_->handed_over(message);
  if (!loop_ || end_) return received;
  // The caller has it for as long as it likes: as if it was kept in a callback.
  if (message.pieces.empty()) device_->pool->count(*received.buffer_.block_);
  free_receive(message, {});
  pump();
  loop_->ready(shared_from_this());
  return received;
}

// --- The end -------------------------------------------------------------------------------------

void Link::disconnect() {
  if (!loop_ || end_) return;
  discard_ = true;
  end(Ending::By::us, was_established_ ? ECONNABORTED : ECANCELED,
      was_established_ ? "" : "disconnected before there was a connection");
}

void Link::disconnect_after_sending() {
  if (!was_established_) return disconnect();
  if (!loop_ || end_ || state_ == State::disconnecting) return;
  state_ = State::disconnecting;
  session_->close();
  pump();
}

// --- Looking -------------------------------------------------------------------------------------

Statistics Link::statistics() const {
  Statistics statistics = counted_;
  if (!session_) return statistics;
  statistics.messages_waiting = session_->waiting_messages();
  statistics.credit_waits = session_->credit_waits();
  statistics.waited_for_credits = session_->waited_for_credits(TimePoint::clock::now());
  return statistics;
}

std::string Link::local_address() const {
  return id_ ? id_->local_address() : std::string();
}

std::string Link::peer_address() const {
  return id_ ? id_->peer_address() : std::string();
}

// --- Coroutines ----------------------------------------------------------------------------------

std::shared_ptr<Suspension> Link::suspension(Deadline deadline, std::stop_token stop) {
  return std::make_shared<Suspension>(loop_ ? loop_->weak_from_this() : std::weak_ptr<LoopCore>(),
                                      deadline, std::move(stop));
}

void Link::await(std::shared_ptr<Suspension> suspension, std::function<bool()> ready) {
  waiters_.push_back({std::move(suspension), std::move(ready)});
}

void Link::throw_error() const {
  if (rejected_) throw *rejected_;
  if (end_) throw Error(end_->ending.error_number, end_->what);
  throw Error(ECANCELED, "there is no connection");
}

void Link::set_handlers(Handlers handlers) {
  if (!loop_) return;
  handlers_ = std::make_shared<const Handlers>(std::move(handlers));
  loop_->ready(shared_from_this());  // messages may wait for it
}

}  // namespace weft::message::detail
