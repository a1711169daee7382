// What the user is told, and the end.
#include <fmt/format.h>

#include <utility>

#include "base/size.h"
#include "message/link.h"

namespace weft::message::detail {

// --- Messages ------------------------------------------------------------------------------------

Received Link::take_message(InMessage& message) {
  if (!message.pieces.empty()) {
    BlockPointer block = std::move(fetched_.front());
    fetched_.pop_front();
    std::byte* data = block->data;
    return {Buffer(std::move(block), data, to_size(message.bytes)), message.type, message.tag};
  }
  // Those that came in one receive share it.
  BlockPointer& receive = receives_[message.slot];
  BlockPointer block = message.last ? std::move(receive) : receive;
  std::byte* data = block->data + message.offset;
  return {Buffer(std::move(block), data, to_size(message.bytes)), message.type, message.tag};
}

// The message has been handed over, and this is what was not kept of it.
void Link::free_receive(const InMessage& message, Buffer rest) {
  if (!message.pieces.empty()) {
    post_receive(message.slot);
    session_->restore();
    return;
  }
  if (!rest) kept_[message.slot] = true;
  if (!message.last) return;
  if (kept_[message.slot]) {
    kept_[message.slot] = false;
    missing_.push_back(message.slot);
    return refill();
  }
  receives_[message.slot] = std::move(rest.block_);
  post_receive(message.slot);
  session_->restore();
}

// After the callback: what it has not kept is free again.
void Link::settle(const InMessage& message, Received& received) {
  session_->handed_over(message);
  if (end_ || !loop_) return;
  free_receive(message, std::move(received.buffer_));
}

std::size_t Link::hand_over(std::size_t most) {
  std::size_t done = 0;
  while (done < most && session_->has_ready() && handlers_ && handlers_->message) {
    if (discard_) break;
    const auto handlers = handlers_;
    InMessage message = session_->take();
    Received received = take_message(message);
    ++done;
    ++counted_.messages_received;
    counted_.bytes_received += message.bytes;
    // Also where the callback throws: the message was handed over.
    struct Settle {
      Link& link;
      const InMessage& message;
      Received& received;
      const std::shared_ptr<Link> alive;
      ~Settle() { link.settle(message, received); }
    } const settle{*this, message, received, shared_from_this()};
    Connection connection(settle.alive);
    handlers->message(connection, received);
  }
  return done;
}

std::size_t Link::tell_changes(std::size_t most) {
  std::size_t done = 0;
  while (done < most) {
    const auto change = session_->take_change();
    if (!change) break;
    ++done;
    auto record = std::static_pointer_cast<Record>(change->message);
    if (change->status == Status::sent) {
      ++counted_.messages_sent;
      counted_.bytes_sent += record->bytes;
    }
    if (change->status != Status::delivered) {
      record->granted.clear();
      record->block.reset();
    }
    const auto handlers = handlers_;
    if (!handlers) continue;
    const auto& handler = change->status == Status::sent        ? handlers->sent
                          : change->status == Status::delivered ? handlers->delivered
                                                                : handlers->failed;
    if (!handler) continue;
    Connection connection(shared_from_this());
    handler(connection, Sending(std::move(record)));
  }
  return done;
}

void Link::tell_writable() {
  if (!refused_ || end_ || !loop_) return;
  if (session_->waiting_messages() > limits_.send_queue_messages / 2 ||
      session_->waiting_bytes() > limits_.send_queue_bytes / 2) {
    return;
  }
  refused_ = false;
  const auto handlers = handlers_;
  Connection connection(shared_from_this());
  if (handlers->writable) handlers->writable(connection);
}

// Of those that wait, whoever has it now.
void Link::wake_waiters() {
  for (std::size_t i = 0; i < waiters_.size();) {
    if (waiters_[i].suspension->waits() && !waiters_[i].ready()) {
      ++i;
      continue;
    }
    const auto suspension = std::move(waiters_[i].suspension);
    waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(i));
    suspension->resume(Woken::ready);
    i = 0;  // it may have changed anything
  }
}

// --- The end -------------------------------------------------------------------------------------

void Link::end(Ending::By by, int error, std::string what) {
  if (end_ || !loop_) return;
  end_ = End{{by, error}, std::move(what)};
  if (state_ == State::established) state_ = State::disconnecting;
  loop_->defer([self = shared_from_this()] { self->finish(); });
}

// Nothing of the device is used after this. What was received, and what is to be told, stays.
void Link::release() {
  if (queue_ && session_ && was_established_) {
    // What came before the end is here already.
    queue_->for_each([this](const verbs::Completion& completion) { complete(completion); });
    // Whoever reads a CLOSE disconnects: that may be faster than the CLOSE's completion.
    if (end_->ending.by == Ending::By::cut && closing_slot_) {
      end_->ending = {Ending::By::us, 0};
    } else if (end_->ending.by == Ending::By::cut && session_->closed_by_peer()) {
      end_->ending = {Ending::By::peer, 0};
    }
  }
  if (id_ && was_established_) {
    try {
      id_->disconnect();
    } catch (const Error&) {
      // The peer was first.
    }
  }
  const rdma_cm_id* raw = id_ ? id_->raw() : nullptr;
  queue_pair_.reset();  // before the memory that it may use
  queue_.reset();
  id_.reset();
  fetches_.clear();
  to_fetch_ = nullptr;
  headers_.reset();
  header_memory_.reset();
  under_way_.clear();
  ticket_ = Ticket();
  state_ = State::ended;
  if (session_) {
    const int error = end_->ending.error_number ? end_->ending.error_number : ECONNRESET;
    session_->fail_all(error);
  }
  if (loop_) loop_->forget(raw);
}

void Link::finish() {
  if (!loop_ || state_ == State::ended) return;
  release();
  tell_end();
}

void Link::tell_end() {
  if (!loop_) return;
  const auto self = shared_from_this();
  // A callback that throws does not keep the others from being called.
  struct Again {
    std::shared_ptr<Link> link;
    ~Again() {
      if (link && link->loop_) {
        link->loop_->defer([link = link] { link->tell_end(); });
      }
    }
  } again{self};
  while (session_ && (hand_over(64) > 0 || tell_changes(64) > 0)) continue;
  wake_waiters();
  const auto handlers = handlers_;
  if (!loop_) return;  // a callback has destroyed it
  Connection connection(self);
  if (!std::exchange(told_error_, true) && handlers->error && !end_->what.empty()) {
    if (rejected_) {
      handlers->error(connection, *rejected_);
    } else {
      handlers->error(connection, Error(end_->ending.error_number, end_->what));
    }
  }
  if (!loop_) return;
  again.link.reset();
  loop_->remove(number_);
  loop_ = nullptr;
  if (!session_ || session_->inbox_messages() == 0) receives_.clear();
  handlers_.reset();  // and with them what they have captured
  if (was_established_ && handlers->disconnected) handlers->disconnected(connection, end_->ending);
}

void Link::cut() {
  if (!loop_) return;
  if (!end_) end_ = End{{Ending::By::us, ECONNABORTED}, ""};
  discard_ = true;
  loop_ = nullptr;
  if (state_ != State::ended) release();
  // Nobody is told, but every status is right, and memory is free.
  handlers_.reset();
  if (session_) (void)tell_changes(SIZE_MAX);
  // Coroutines that wait are destroyed with the loop.
  const auto waiters = std::move(waiters_);
  waiters_.clear();
}

}  // namespace weft::message::detail
