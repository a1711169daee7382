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
  waiting_.push(std::move(message));
}

void Session::refuse(OutPointer message, int error) {
  message->error = error;
  message->status = Status::failed;
  changes_.push_back({std::move(message), Status::failed});
}

// An UPDATE is due when the peer waits for a count or an answer, or for credits. With few credits
// to grant it is due only if the peer has none left, and no message in the inbox will soon add
// more.
bool Session::update_due() const {
  return update_owed_ || credits_.grant_due() || (credits_.peer_waits() && inbox_.empty());
}

// CLOSE comes when every message is sent, and delivered where that was asked for.
bool Session::close_due() const {
  return closing_ && !close_sent_ && waiting_.empty() && offered_.empty() && unsent_.empty() &&
         unconfirmed_.empty();
}

// Every frame carries all that is owed to the peer: credits, counts, and the request for an answer.
Emission Session::emit(Kind kind) {
  Emission emission;
  Frame& frame = emission.frame;
  frame.kind = kind;
  frame.credits = credits_.grant();
  frame.delivered = inbox_.delivered();
  frame.fetched = inbox_.fetched();
  frame.updates = credits_.report_updates();
  update_owed_ = false;
  return emission;
}

// Moves the first waiting message to the queue that it stays in until it is sent.
OutMessage* Session::take_waiting() {
  OutMessage& message = waiting_.front();
  waiting_bytes_ -= message.bytes;
  ++framed_;
  if (message.confirm) unconfirmed_.push_back({framed_, waiting_.share_front()});
  waiting_.move_front_to(is_offered(message) ? offered_ : unsent_);
  return &message;
}

Emission Session::emit_messages() {
  OutMessage* const message = take_waiting();
  const bool offered = is_offered(*message);
  Emission emission = emit(offered ? Kind::offer : Kind::message);
  Frame& frame = emission.frame;
  frame.confirm = message->confirm;
  frame.type = message->type;
  frame.tag = message->tag;
  frame.bytes = message->bytes;
  emission.messages.push_back(message);
  if (!offered && peers_.joined) join_waiting(emission);
  return emission;
}

// Turns a MESSAGE into a JOINED frame if others wait behind it, with as many as there is room for.
// A message that waits alone stays a MESSAGE: that frame needs no copy of the payload.
void Session::join_waiting(Emission& emission) {
  Frame& frame = emission.frame;
  const auto join = [&](const OutMessage& message) {
    return frame.join({message.type, message.tag, message.confirm, message.bytes, 0},
                      joined_bytes_);
  };
  if (waiting_.empty() || is_offered(waiting_.front())) return;
  const std::size_t most = std::min(waiting_.size() + 1, Frame::max_parts);
  frame.parts.reserve(most);
  emission.messages.reserve(most);
  if (!join(*emission.messages.front())) return;
  while (!waiting_.empty() && !is_offered(waiting_.front()) && join(waiting_.front())) {
    emission.messages.push_back(take_waiting());
  }
  if (emission.messages.size() == 1) {
    frame.parts.clear();
    return;
  }
  frame.kind = Kind::joined;
  frame.confirm = false;
}

// Data frames first: they carry whatever an UPDATE would.
std::optional<Emission> Session::next(TimePoint now) {
  const bool data = !waiting_.empty() || close_due();
  credit_wait_.set(data && !credits_.can_send(), now);
  if (data && credits_.can_send()) {
    credits_.spend();
    if (!waiting_.empty()) return emit_messages();
    close_sent_ = true;
    return emit(Kind::close);
  }
  if (!update_due() || !credits_.can_update()) return std::nullopt;
  const bool last = credits_.spend_update();
  Emission emission = emit(Kind::update);
  emission.frame.answer |= last;  // the next UPDATE needs this one's receive to be confirmed
  return emission;
}

// Sends complete in the order of their frames, so the oldest messages are meant.
void Session::on_sent(std::size_t messages) {
  for (; messages > 0 && !unsent_.empty(); --messages) complete(unsent_.pop());
}

// The message is sent. If the peer's count of deliveries came before, it is delivered as well.
void Session::complete(OutPointer message) {
  const bool delivered = message->acknowledged_;
  message->status.store(delivered ? Status::delivered : Status::sent, std::memory_order_release);
  if (delivered) changes_.push_back({message, Status::sent});
  changes_.push_back({std::move(message), delivered ? Status::delivered : Status::sent});
}

std::optional<Change> Session::take_change() {
  if (changes_.empty()) return std::nullopt;
  Change change = std::move(changes_.front());
  changes_.pop_front();
  return change;
}

// Statuses change at once; the application gets them from take_change(). A message that was sent
// but not delivered, with `confirm`, fails too.
void Session::fail_all(int error) {
  std::deque<OutPointer> failed;
  for (MessageQueue* const queue : {&unsent_, &offered_}) {
    while (!queue->empty()) failed.push_back(queue->pop());
  }
  for (const auto& [number, message] : unconfirmed_) {
    if (message->status == Status::sent) failed.push_back(message);
  }
  while (!waiting_.empty()) failed.push_back(waiting_.pop());
  unconfirmed_.clear();
  waiting_bytes_ = 0;
  for (auto& message : failed) refuse(std::move(message), error);
}

// --- Receiving -----------------------------------------------------------------------------------

Session::FrameResult Session::refuse(const char* why) {
  violation_ = why;
  return FrameResult::violation;
}

// Takes the counts that each frame carries about messages of this side. Counts are compared as
// distances, because they wrap at 2^32. False if they exceed what was sent.
bool Session::accept_counts(const Frame& frame) {
  const Count fetched = frame.fetched - peer_fetched_;
  if (fetched > offered_.size() || frame.delivered - peer_delivered_ > framed_ - peer_delivered_) {
    return false;
  }
  peer_fetched_ = frame.fetched;
  peer_delivered_ = frame.delivered;
  while (!unconfirmed_.empty() &&
         framed_ - unconfirmed_.front().number >= framed_ - peer_delivered_) {
    const OutPointer message = std::move(unconfirmed_.front().message);
    unconfirmed_.pop_front();
    message->acknowledged_ = true;
    if (message->status != Status::sent) continue;  // complete() reports both, in order
    message->status = Status::delivered;
    changes_.push_back({message, Status::delivered});
  }
  for (Count i = 0; i < fetched; ++i) {
    complete(offered_.pop());
  }
  return true;
}

// Every violation ends the connection, so it does not matter that counts may have changed before it
// is found.
Session::FrameResult Session::on_frame(Bytes bytes, std::uint32_t slot) {
  auto frame = Frame::parse(bytes);
  if (!frame) return refuse("a malformed frame");
  if (!credits_.earn(frame->credits, frame->updates))
    return refuse("more credits than this side has");
  if (!accept_counts(*frame)) return refuse("counts above what was sent");
  if (frame->answer) update_owed_ = true;
  if (frame->kind == Kind::update) {
    return credits_.take_update() ? FrameResult::released : refuse("more updates than it may send");
  }
  if (!credits_.take_data()) return refuse("a frame without a credit");
  if (peer_closed_) return refuse("a frame after its CLOSE");
  if (frame->kind == Kind::close) {
    peer_closed_ = true;
    credits_.restore();
    return FrameResult::released;
  }
  if (frame->kind == Kind::joined && !ours_.joined) return refuse("a frame of an unknown kind");
  const std::uint64_t max =
      frame->kind == Kind::offer ? ours_.max_message_bytes : ours_.eager_bytes;
  const auto too_long = [&](const Part& part) { return part.bytes > max; };
  if (frame->bytes > max || std::ranges::any_of(frame->parts, too_long)) {
    return refuse("a message that is too long");
  }
  inbox_.add(*frame, slot);
  return FrameResult::kept;
}

void Session::on_fetched(InMessage& message) {
  inbox_.on_fetched(message);
  update_owed_ = true;
}

void Session::handed_over(const InMessage& message) {
  inbox_.count_delivered();
  if (message.confirm) update_owed_ = true;
}

}  // namespace weft::message::detail
