// One side of a message connection, whose peer sends any frames in any order while the program
// sends, receives and closes. The target checks that the peer never gets more frames under way than
// there are receives, that what it has not granted is not used, and that each message of this side
// gets one final status.
//
// The first four bytes are the terms; each call has eight bytes: which one, and its arguments.
#include <algorithm>
#include <deque>
#include <memory>

#include "fuzz/fuzz.h"
#include "message/session.h"

namespace weft::fuzz {
namespace {

using namespace message::detail;
using message::Status;

constexpr std::size_t call_bytes = 8;
constexpr std::size_t most_calls = 500;

std::uint32_t number(Bytes call, std::size_t at) {
  return std::to_integer<std::uint32_t>(call[at]);
}

Terms terms_of(std::uint32_t credits, std::uint32_t eager) {
  return {.credits = static_cast<std::uint16_t>(1 + credits % 16),
          .eager_bytes = eager * 2,
          .max_message_bytes = 5000,
          .joined = credits >= 128};
}

class Side {
 public:
  Side(const Terms& ours, const Terms& peers)
      : session_(ours, peers), terms_(ours), receives_(ours.credits + Credits::update_receives) {}

  void carry_out(Bytes call) {
    switch (number(call, 0) % 8) {
      case 0:
        return receive(call.subspan(1));
      case 1:
        return receive_frame(call);
      case 2:
        return enqueue(call);
      case 3:
        return post();
      case 4:
        return complete();
      case 5:
        return fetch();
      case 6:
        return hand_over();
      default:
        if (number(call, 1) == 7) session_.close();
    }
  }
  void finish() {
    session_.fail_all(ECONNRESET);
    take_changes();
    for (const auto& message : messages_) {
      const Status status = message->status;
      const Status wanted = message->confirm ? Status::delivered : Status::sent;
      require(status == wanted || status == Status::failed);
    }
    require(!session_.has_changes());
  }
  [[nodiscard]] bool violated() const { return violated_; }

 private:
  // A frame with small numbers, which is likely to be accepted.
  void receive_frame(Bytes call) {
    Frame frame{.kind = static_cast<Kind>(1 + number(call, 1) % 5),
                .confirm = (number(call, 1) & 0x40) != 0,
                .answer = (number(call, 1) & 0x80) != 0,
                .credits = static_cast<std::uint16_t>(number(call, 2) % 4),
                .delivered = delivered_ += number(call, 3) % 4,
                .fetched = fetched_ += number(call, 4) % 3,
                .updates = updates_ += number(call, 5) % 3,
                .pieces = {},
                .parts = {}};
    std::vector<std::byte> bytes(2000);
    if (frame.kind == Kind::offer) {
      frame.bytes = 1 + number(call, 6) * 20;
      frame.pieces = {{0x1000, frame.bytes, 7}};
    }
    const Part part{.confirm = number(call, 6) % 2 == 1, .bytes = number(call, 7)};
    for (std::uint32_t i = 0; frame.kind == Kind::joined && i <= number(call, 6) % 8; ++i) {
      (void)frame.join(part, bytes.size());
    }
    bytes.resize(frame.encode(bytes));
    if (frame.kind == Kind::message) bytes.resize(bytes.size() + 3 * number(call, 7));
    receive(bytes);
  }
  // Without a receive the device would have ended the connection.
  void receive(Bytes bytes) {
    if (receives_ == 0) return;
    --receives_;
    switch (session_.on_frame(bytes, 0)) {
      case Session::FrameResult::violation:
        require(session_.violation()[0] != '\0');
        violated_ = true;
        break;
      case Session::FrameResult::kept:
        ++kept_;
        require(kept_ <= terms_.credits);
        break;
      case Session::FrameResult::released:
        ++receives_;
        break;
    }
    take_changes();
  }
  void enqueue(Bytes call) {
    auto message = std::make_shared<OutMessage>();
    message->bytes = number(call, 1) * 8;
    message->confirm = number(call, 2) % 2 == 1;
    messages_.push_back(message);
    session_.enqueue(std::move(message));
  }
  void post() {
    auto emission = session_.next({});
    if (!emission) return;
    if (emission->frame.kind == Kind::offer) {
      emission->frame.pieces = {{0x1000, emission->messages.front()->bytes, 7}};
    }
    std::vector<std::byte> bytes(std::max<std::size_t>(
        Frame::largest_bytes, Frame::payload_offset + session_.peer_terms().eager_bytes));
    require(emission->frame.encode(bytes) > 0);
    posted_.push_back(emission->frame.kind == Kind::offer ? 0 : emission->messages.size());
  }
  void complete() {
    if (posted_.empty()) return;
    session_.on_sent(posted_.front());
    posted_.pop_front();
    take_changes();
  }
  // Asks for the next one, or finishes the oldest.
  void fetch() {
    if (InMessage* next = session_.next_fetch()) {
      require(next->bytes > 0 && next->bytes <= terms_.max_message_bytes);
      return fetching_.push_back(next);
    }
    if (fetching_.empty()) return;
    session_.on_fetched(*fetching_.front());
    fetching_.pop_front();
  }
  void hand_over() {
    if (!session_.has_ready()) return;
    const InMessage message = session_.take();
    session_.handed_over(message);
    if (!message.last) return;
    require(kept_ > 0);
    --kept_;
    ++receives_;
    session_.restore();
  }
  void take_changes() {
    while (const auto change = session_.take_change()) {
      require(change->message != nullptr && change->status != Status::waiting);
    }
  }

  Session session_;
  Terms terms_;
  std::size_t receives_;
  std::size_t kept_ = 0;  // receives whose messages wait for the program
  std::deque<std::size_t> posted_;
  std::deque<InMessage*> fetching_;
  std::vector<OutPointer> messages_;
  Count delivered_ = 0, fetched_ = 0, updates_ = 0;  // as the peer reports
  bool violated_ = false;
};

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft::fuzz;
  if (size < 4) return 0;
  Side side(terms_of(data[0], data[1]), terms_of(data[2], data[3]));
  auto input = input_bytes(data, std::min(size, 4 + most_calls * call_bytes)).subspan(4);
  for (; input.size() >= call_bytes && !side.violated(); input = input.subspan(call_bytes)) {
    side.carry_out(input.first(call_bytes));
  }
  side.finish();
  return 0;
}
