#include "device/local/pair_end.h"

#include <sys/socket.h>

#include <utility>

#include "device/device.h"

namespace weft::device {

using pair_message::Answer;
using pair_message::Header;
using pair_message::Kind;

namespace {

Header header_of(Kind kind, std::uint32_t number, Answer answer = Answer::accepted) {
  Header header;
  header.kind = kind;
  header.number = number;
  header.answer = answer;
  return header;
}

}  // namespace

PairEnd& PairEnd::operator=(PairEnd&& other) noexcept {
  if (this == &other) return *this;
  leave();
  pair_ = std::move(other.pair_);
  number_ = other.number_;
  serves_ = other.serves_;
  answered_ = other.answered_;
  peer_has_begun_ = other.peer_has_begun_;
  own_ = std::move(other.own_);
  peer_ = std::move(other.peer_);
  process_ = std::move(other.process_);
  files_ = std::move(other.files_);
  frame_ = std::move(other.frame_);
  position_ = other.position_;
  return *this;
}

void PairEnd::serve(std::weak_ptr<Pollable> target) const {
  const std::lock_guard lock(pair_->mutex_);
  pair_->entries_[number_].target = std::move(target);
}

bool PairEnd::is_lost() const {
  if (pair_->gone()) return true;
  // The engine may not have read the channel yet. Over TCP, accepting looks for itself as well.
  if (serves_ && !answered_ && sys::peer_closed(pair_->channel_.fd())) return true;
  const std::lock_guard lock(pair_->mutex_);
  return pair_->entries_[number_].cancelled;
}

std::optional<PairReply> PairEnd::take_reply() {
  const std::lock_guard lock(pair_->mutex_);
  auto reply = std::exchange(pair_->entries_[number_].reply, std::nullopt);
  if (!reply) return reply;
  answered_ = true;
  take_parts_of(*reply);
  return reply;
}

void PairEnd::take_parts_of(PairReply& reply) {
  peer_has_begun_ = reply.accepted;
  peer_ = std::move(reply.inbox);
  process_ = std::move(reply.process);
  files_ = std::move(reply.files);
}

bool PairEnd::take_inbox(std::uint32_t receives) {
  const std::lock_guard lock(pair_->mutex_);
  own_ = pair_->take_inbox(receives);
  return own_.valid();
}

// Files of the programs are shared by both or not at all. An acceptance that cannot be sent ends
// the connection, and leave() refuses it.
void PairEnd::accept(Context& context, const SharedFiles& offered) {
  if (!offered.memory.valid()) files_ = {};
  const std::lock_guard lock(pair_->mutex_);
  answered_ =
      pair_->send_with_files(header_of(Kind::reply, number_), frame_, own_, &context, offered, -1);
  if (!answered_) pair_->entries_[number_].cancelled = true;
}

// The number is free with the answer, so this end has left it before.
void PairEnd::refuse(Bytes frame, Answer answer) {
  refuse_by(header_of(Kind::reply, number_, answer), frame);
}

void PairEnd::refuse_lacking(const Header& request) {
  Header reply = pair_message::naming_parts_of(request);
  reply.kind = Kind::reply;
  reply.number = number_;
  reply.answer = Answer::lacking;
  refuse_by(reply, {});
}

void PairEnd::refuse_by(const Header& reply, Bytes frame) {
  const auto pair = std::exchange(pair_, nullptr);
  // Answer::refused is mostly the program's.
  if (reply.answer != Answer::refused) ++pair->device_.refusals().local_refused;
  const std::lock_guard lock(pair->mutex_);
  pair->entries_[number_] = {};
  --pair->used_;
  if (own_.valid()) pair->give_back(std::move(own_));
  (void)pair->send_with_files(reply, frame, {}, nullptr, {}, -1);
  peer_ = {};
  files_ = {};
}

sys::Descriptor PairEnd::accept_as_stream() {
  int ends[2] = {-1, -1};
  if (sys::socket_pair(SOCK_STREAM, ends) < 0) return {};
  sys::Descriptor here(ends[0]);
  const sys::Descriptor there(ends[1]);
  const auto pair = std::exchange(pair_, nullptr);
  const std::lock_guard lock(pair->mutex_);
  pair->entries_[number_] = {};
  --pair->used_;
  if (own_.valid()) pair->give_back(std::move(own_));
  const Header as_stream = header_of(Kind::reply, number_, Answer::as_stream);
  if (pair->send_with_files(as_stream, frame_, {}, nullptr, {}, there.get())) return here;
  (void)pair->send_with_files(header_of(Kind::reply, number_, Answer::refused), {}, {}, nullptr, {},
                              -1);
  return {};
}

void PairEnd::abandon_after_fork() {
  if (!pair_) return;
  pair_->abandoned_ = true;
  pair_->gone_ = true;
}

// The peer's inbox is not accessed any more once it says so. The peer sees the end of the
// connection, unless a reason was given before.
void PairEnd::end_and_leave(ProcessPair& pair) {
  inbox::Inbox& peer = *peer_.inbox();
  inbox::End none = inbox::End::none;
  const bool ends_here = peer.end.compare_exchange_strong(none, inbox::End::closed);
  peer.leaving.position.store(position_.value_or(peer.first_slot), std::memory_order_relaxed);
  // Rung before the number may serve another connection. Where an end was reported before, the
  // peer was rung for it (LocalConnection::report_end()).
  if (ends_here) pair.ring(number_, ProcessPair::Wakes::waiter);
  pair.leave(number_, std::move(own_));
  peer.leaving.done.store(1, std::memory_order_release);
}

void PairEnd::leave() {
  if (!pair_) return;
  const auto pair = std::exchange(pair_, nullptr);
  if (pair->abandoned_) return;
  if (!serves_ && !answered_) {
    // Without a reply only the peer knows whether it uses the inbox.
    const std::lock_guard lock(pair->mutex_);
    auto& entry = pair->entries_[number_];
    if (entry.reply) {
      take_parts_of(*entry.reply);
    } else if (!pair->gone()) {
      entry.cancelled = true;
      entry.cancelled_own = std::move(own_);
      entry.target.reset();
      (void)pair->send(header_of(Kind::cancel, number_), {}, {});
      return;
    }
  }
  if (serves_ && !answered_) {
    pair_ = pair;
    return refuse({});
  }
  if (own_.valid() && peer_.valid()) return end_and_leave(*pair);
  // The peer uses the inbox until it has learnt that this end could not map the peer's own.
  if (own_.valid() && peer_has_begun_) return pair->leave(number_, std::move(own_));
  // Refused: the peer has never used the inbox.
  const std::lock_guard lock(pair->mutex_);
  pair->entries_[number_] = {};
  --pair->used_;
  if (own_.valid()) pair->give_back(std::move(own_));
  pair->free_number(number_);
}

}  // namespace weft::device
