#include "message/session.h"

#include <algorithm>
#include <utility>

namespace weft::message::detail {

Session::Session(const Terms& ours, const Terms& peers)
    : ours_(ours),
      peers_(peers),
      eager_bytes_(std::min(ours.eager_bytes, peers.eager_bytes)),
      joined_bytes_(
          std::max<std::size_t>(Frame::payload_offset + eager_bytes_, Frame::largest_bytes)),
      credits_(ours.credits, peers.credits) {}

// --- Sending -------------------------------------------------------------------------------------

void Session::enqueue(OutPointer message) {
  waiting_bytes_ += message->bytes;
  waiting_.push_back(std::move(message));
}

bool Session::update_due() const {
  return owes_ || ask_ || credits_.grant_due() || (credits_.peer_waits() && inbox_.empty());
}

bool Session::close_due() const {
  return closing_ && !closed_ && waiting_.empty() && offered_.empty() && unsent_.empty() &&
         unconfirmed_.empty();
}

Emission Session::emit(Kind kind) {
  Emission emission;
  Frame& frame = emission.frame;
  frame.kind = kind;
  frame.credits = credits_.grant();
  frame.delivered = delivered_;
  frame.fetched = fetched_;
  frame.updates = credits_.tell_updates();
  frame.answer = ask_;
  owes_ = ask_ = false;
  return emission;
}

OutPointer Session::take_waiting() {
  OutPointer message = std::move(waiting_.front());
  waiting_.pop_front();
  waiting_bytes_ -= message->bytes;
  ++sent_;
  if (message->confirm) unconfirmed_.push_back({sent_, message});
  (is_offered(*message) ? offered_ : unsent_).push_back(message);
  return message;
}

Emission Session::emit_messages() {
  OutPointer message = take_waiting();
  const bool offered = is_offered(*message);
  Emission emission = emit(offered ? Kind::offer : Kind::message);
  Frame& frame = emission.frame;
  frame.confirm = message->confirm;
  frame.type = message->type;
  frame.tag = message->tag;
  frame.bytes = message->bytes;
  emission.messages.push_back(std::move(message));
  if (!offered && peers_.joined) join_waiting(emission);
  return emission;
}

// Those that wait behind the first one go along, as many as there is room for.
void Session::join_waiting(Emission& emission) {
  Frame& frame = emission.frame;
  const auto join = [&](const OutMessage& message) {
    return frame.join({message.type, message.tag, message.confirm, message.bytes, 0},
                      joined_bytes_);
  };
  if (waiting_.empty() || is_offered(*waiting_.front())) return;
  if (!join(*emission.messages.front())) return;
  while (!waiting_.empty() && !is_offered(*waiting_.front()) && join(*waiting_.front())) {
    emission.messages.push_back(take_waiting());
  }
  if (emission.messages.size() == 1) {
    frame.parts.clear();
    return;
  }
  frame.kind = Kind::joined;
  frame.confirm = false;
}

std::optional<Emission> Session::next(TimePoint now) {
  const bool data = !waiting_.empty() || close_due();
  note_wait(data && !credits_.can_send(), now);
  if (data && credits_.can_send()) {
    credits_.spend();
    if (!waiting_.empty()) return emit_messages();
    closed_ = true;
    return emit(Kind::close);
  }
  if (!update_due() || !credits_.can_update()) return std::nullopt;
  const bool last = credits_.spend_update();
  Emission emission = emit(Kind::update);
  emission.frame.answer |= last;
  return emission;
}

void Session::on_sent(std::size_t messages) {
  for (; messages > 0 && !unsent_.empty(); --messages) {
    complete(std::move(unsent_.front()));
    unsent_.pop_front();
  }
}

void Session::complete(OutPointer message) {
  message->status = Status::sent;
  changes_.push_back({message, Status::sent});
  if (!message->acknowledged_) return;
  message->status = Status::delivered;
  changes_.push_back({std::move(message), Status::delivered});
}

std::optional<Change> Session::take_change() {
  if (changes_.empty()) return std::nullopt;
  Change change = std::move(changes_.front());
  changes_.pop_front();
  return change;
}

void Session::fail_all(int error) {
  std::deque<OutPointer> failed;
  for (const auto* queue : {&unsent_, &offered_}) {
    failed.insert(failed.end(), queue->begin(), queue->end());
  }
  for (const auto& [number, message] : unconfirmed_) {
    if (message->status == Status::sent) failed.push_back(message);
  }
  failed.insert(failed.end(), waiting_.begin(), waiting_.end());
  unsent_.clear();
  offered_.clear();
  unconfirmed_.clear();
  waiting_.clear();
  waiting_bytes_ = 0;
  for (auto& message : failed) {
    message->error = error;
    message->status = Status::failed;
    changes_.push_back({std::move(message), Status::failed});
  }
}

void Session::note_wait(bool waits, TimePoint now) {
  if (waits == waiting_since_.has_value()) return;
  if (waits) {
    ++credit_waits_;
    waiting_since_ = now;
  } else {
    waited_ += now - *waiting_since_;
    waiting_since_.reset();
  }
}

std::chrono::nanoseconds Session::waited_for_credits(TimePoint now) const {
  return waiting_since_ ? waited_ + (now - *waiting_since_) : waited_;
}

// --- Receiving -----------------------------------------------------------------------------------

Session::Taken Session::refuse(const char* why) {
  violation_ = why;
  return Taken::violation;
}

bool Session::take_counts(const Frame& frame) {
  const Count fetched = frame.fetched - peer_fetched_;
  if (fetched > offered_.size() || frame.delivered - peer_delivered_ > sent_ - peer_delivered_) {
    return false;
  }
  peer_fetched_ = frame.fetched;
  peer_delivered_ = frame.delivered;
  while (!unconfirmed_.empty() && sent_ - unconfirmed_.front().number >= sent_ - peer_delivered_) {
    const OutPointer message = std::move(unconfirmed_.front().message);
    unconfirmed_.pop_front();
    message->acknowledged_ = true;
    if (message->status != Status::sent) continue;  // complete() tells both, in order
    message->status = Status::delivered;
    changes_.push_back({message, Status::delivered});
  }
  for (Count i = 0; i < fetched; ++i) {
    complete(std::move(offered_.front()));
    offered_.pop_front();
  }
  return true;
}

Session::Taken Session::on_frame(Bytes bytes, std::uint32_t slot) {
  auto frame = Frame::parse(bytes);
  if (!frame) return refuse("a frame that is none");
  if (!credits_.earn(frame->credits, frame->updates)) return refuse("credits that cannot be");
  if (!take_counts(*frame)) return refuse("counts above what was sent");
  if (frame->answer) owes_ = true;
  if (frame->kind == Kind::update) {
    return credits_.take_update() ? Taken::released : refuse("more updates than it may send");
  }
  if (!credits_.take_data()) return refuse("a frame without a credit");
  if (peer_closed_) return refuse("a frame behind its last one");
  if (frame->kind == Kind::close) {
    peer_closed_ = true;
    credits_.restore();
    return Taken::released;
  }
  if (frame->kind == Kind::joined && !ours_.joined) return refuse("a frame of an unknown kind");
  const std::uint64_t most =
      frame->kind == Kind::offer ? ours_.max_message_bytes : ours_.eager_bytes;
  const auto too_long = [&](const Part& part) { return part.bytes > most; };
  if (frame->bytes > most || std::ranges::any_of(frame->parts, too_long)) {
    return refuse("a message that is too long");
  }
  put_in_inbox(*frame, slot);
  return Taken::kept;
}

void Session::put_in_inbox(Frame& frame, std::uint32_t slot) {
  for (const Part& part : frame.parts) {
    inbox_.push_back({.type = part.type,
                      .tag = part.tag,
                      .bytes = part.bytes,
                      .confirm = part.confirm,
                      .ready = true,
                      .slot = slot,
                      .offset = part.offset,
                      .last = &part == &frame.parts.back(),
                      .pieces = {}});
  }
  if (frame.kind == Kind::joined) return;
  inbox_.push_back({.type = frame.type,
                    .tag = frame.tag,
                    .bytes = frame.bytes,
                    .confirm = frame.confirm,
                    .ready = frame.kind == Kind::message,
                    .slot = slot,
                    .offset = Frame::payload_offset,
                    .last = true,
                    .pieces = std::move(frame.pieces)});
}

InMessage* Session::next_fetch() {
  while (fetching_ < inbox_.size()) {
    InMessage& message = inbox_[fetching_++];
    if (!message.pieces.empty()) return &message;
  }
  return nullptr;
}

void Session::on_fetched(InMessage& message) {
  message.ready = true;
  ++fetched_;
  owes_ = true;
}

InMessage Session::take() {
  InMessage message = std::move(inbox_.front());
  inbox_.pop_front();
  if (fetching_ > 0) --fetching_;
  return message;
}

void Session::handed_over(const InMessage& message) {
  ++delivered_;
  if (message.confirm) owes_ = true;
}

}  // namespace weft::message::detail
