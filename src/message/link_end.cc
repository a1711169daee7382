// Calls into the application (messages, statuses, writable), and the end of a connection.
#include <utility>

#include "base/size.h"
#include "message/link.h"

namespace weft::message::detail {

// --- Messages ------------------------------------------------------------------------------------

Received Link::take_message(InMessage& message) {
  if (!message.pieces.empty()) {
    BlockPointer block = fetcher_.take_complete();
    std::byte* data = block->data;
    return {Buffer(std::move(block), data, to_size(message.bytes)), message.type, message.tag};
  }
  BlockPointer block = receive_slots_.take(message);
  std::byte* data = block->data + message.offset;
  return {Buffer(std::move(block), data, to_size(message.bytes)), message.type, message.tag};
}

// The message was handed over; `rest` is its memory, or null if the application has kept it. Posts
// the receive again where that is possible: only then the peer gets its credit back.
void Link::release_receive(const InMessage& message, BlockPointer rest) {
  if (!message.pieces.empty()) {  // the receive has held the OFFER only
    post_receive(message.slot);
    session_->restore();
    return;
  }
  switch (receive_slots_.release(message, std::move(rest))) {
    case ReceiveSlots::State::in_use:
      return;
    case ReceiveSlots::State::missing:
      return refill_receives();
    case ReceiveSlots::State::ready:
      post_receive(message.slot);
      session_->restore();
  }
}

void Link::settle_delivery(const InMessage& message, Received& received) {
  // The confirmation that the sender may have asked for is sent from here on.
  session_->handed_over(message);
  if (end_ || !loop_) return;
  release_receive(message, std::move(received.buffer_.block_));
}

// Calls the `message` handler for at most `max` messages. Returns how many it were.
std::size_t Link::deliver_messages(std::size_t max) {
  std::size_t done = 0;
  const auto alive = shared_from_this();
  std::shared_ptr<const Handlers> handlers;
  Connection connection(alive);
  while (done < max && session_->has_ready() && handlers_ && handlers_->message) {
    // After disconnect() the application wants no more messages.
    if (discard_) break;
    // A handler may replace the handlers, and move from its argument.
    if (handlers != handlers_) handlers = handlers_;
    if (connection.link_ != alive) connection = Connection(alive);
    InMessage message = session_->take();
    Received received = take_message(message);
    ++done;
    ++statistics_.messages_received;
    statistics_.bytes_received += message.bytes;
    // A destructor, because the message was handed over even if the handler throws.
    struct Settle {
      Link& link;
      const InMessage& message;
      Received& received;
      ~Settle() { link.settle_delivery(message, received); }
    } const settle{*this, message, received};
    handlers->message(connection, received);
  }
  return done;
}

// Calls `sent`, `delivered` and `failed` for at most `max` changes of status, and releases the
// memory of messages that no longer need it. Returns how many changes it were.
std::size_t Link::report_statuses(std::size_t max) {
  std::size_t done = 0;
  while (done < max) {
    auto change = session_->take_change();
    if (!change) break;
    ++done;
    auto record = std::static_pointer_cast<Record>(std::move(change->message));
    if (change->status == Status::sent) {
      ++statistics_.messages_sent;
      statistics_.bytes_sent += record->bytes;
    }
    // Sent or failed: neither the device nor the peer reads the memory any more.
    if (change->status != Status::delivered) {
      record->granted.clear();
      record->block.reset();
    }
    call_status_handler(change->status, record);
    if (loop_) loop_->sends().records().give_back(std::move(record));
  }
  return done;
}

bool Link::statuses_matter() const {
  return !waiters_.empty() ||
         (handlers_ && (handlers_->sent || handlers_->delivered || handlers_->failed));
}

void Link::call_status_handler(Status status, const std::shared_ptr<Record>& record) {
  if (!handlers_) return;
  const auto& handler = status == Status::sent        ? handlers_->sent
                        : status == Status::delivered ? handlers_->delivered
                                                      : handlers_->failed;
  if (!handler) return;
  const auto handlers = handlers_;  // the handler may replace them
  Connection connection(shared_from_this());
  handler(connection, Sending(record));
}

// Called only after a send was refused, and not before half of the queue is free: otherwise each
// completion would wake a sender for one message.
void Link::report_writable() {
  if (!send_refused_ || end_ || !loop_) return;
  if (session_->waiting_messages() > limits_.send_queue_messages / 2 ||
      session_->waiting_bytes() > limits_.send_queue_bytes / 2) {
    return;
  }
  send_refused_ = false;
  const auto handlers = handlers_;
  Connection connection(shared_from_this());
  if (handlers->writable) handlers->writable(connection);
}

// --- The end -------------------------------------------------------------------------------------

// Only notes the cause. The rest is deferred, because the caller may be in the middle of a turn, or
// in a handler.
void Link::end(Ending::By by, int error, std::string text, ErrorDetail detail) {
  if (end_ || !loop_) return;
  end_.set({by, error}, std::move(text), std::move(detail));
  if (state_ == State::established) state_ = State::disconnecting;
  loop_->defer([self = shared_from_this()] { self->finish(); });
}

void Link::fail(int error, std::string text, ErrorDetail detail) {
  if (detail.object.empty()) detail = {.object = "connection", .peer = peer_.name};
  end(Ending::By::failure, error, std::move(text), std::move(detail));
}

// Disconnects and destroys what belongs to the device. Messages that have arrived, and changes of
// status, stay to be reported.
void Link::release() {
  if (transport_.has_queue() && session_ && was_established_) {
    // Frames that arrived before the end are in the queue already.
    transport_.queue().for_each(
        [this](const verbs::Completion& completion) { complete(completion); });
    // A peer that reads our CLOSE disconnects, which we may see before the completion of the CLOSE.
    if (end_.ending().by == Ending::By::cut && send_slots_.close_was_posted()) {
      end_.correct({Ending::By::us, 0});
    } else if (end_.ending().by == Ending::By::cut && session_->closed_by_peer()) {
      end_.correct({Ending::By::peer, 0});
    }
  }
  if (was_established_) transport_.disconnect();
  const rdma_cm_id* raw = transport_.id() ? transport_.id()->raw() : nullptr;
  // Destroying the queue pair ends every access to memory, so the blocks behind it may be freed.
  transport_.reset();  // before the memory that its requests may use
  fetcher_.abandon();
  send_slots_.close();
  counted_ = CountedConnection();
  state_ = State::ended;
  if (early_.messages() > 0) {
    // Without a connection a session has nothing to send, and only reports the failures.
    if (!session_) session_.emplace(Terms{}, Terms{});
    while (auto record = early_.take()) session_->enqueue(std::move(record));
  }
  if (session_) session_->fail_all(end_.error_number() ? end_.error_number() : ECONNRESET);
  if (loop_) loop_->forget(raw);
}

void Link::finish() {
  if (!loop_ || state_ == State::ended) return;
  release();
  report_end();
}

// Calls all handlers that are due, `error` and `disconnected` last. Each call of this that a
// handler leaves by an exception is repeated by the loop, and goes on where it was.
void Link::report_end() {
  if (!loop_) return;
  const auto self = shared_from_this();
  struct Again {
    std::shared_ptr<Link> link;
    ~Again() {
      if (link && link->loop_) {
        link->loop_->defer([link = link] { link->report_end(); });
      }
    }
  } again{self};
  while (session_ && (deliver_messages(64) > 0 || report_statuses(64) > 0)) continue;
  waiters_.resume_ready();
  const auto handlers = handlers_;
  if (!loop_) return;  // a handler has destroyed the loop
  Connection connection(self);
  end_.report_error([&](const Error& error) {
    if (handlers->error) handlers->error(connection, error);
  });
  if (!loop_) return;
  again.link.reset();
  // From here on the loop does not own this link; handles of the application may.
  loop_->remove(number_);
  loop_ = nullptr;
  if (!session_ || session_->inbox_messages() == 0) receive_slots_.close();
  handlers_.reset();  // and with them what they have captured
  if (was_established_ && handlers->disconnected) {
    handlers->disconnected(connection, end_.ending());
  }
}

void Link::shut_down() {
  if (!loop_) return;
  if (!end_) end_.set({Ending::By::us, ECONNABORTED}, "");
  discard_ = true;
  loop_ = nullptr;
  if (state_ != State::ended) release();
  // No handler is called, but every status becomes right, and the memory of messages is released.
  handlers_.reset();
  if (session_) (void)report_statuses(SIZE_MAX);
  waiters_.clear();  // the coroutines themselves are destroyed with the loop
}

}  // namespace weft::message::detail
