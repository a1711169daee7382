// Session: the message protocol of one connection without I/O (docs/message-protocol.md). Frames go
// in and out, and each message gets its status. It knows no queue pair, no thread and no clock; the
// owner posts, in order, what next() returns.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "message/credit_wait.h"
#include "message/credits.h"
#include "message/frame_wire.h"
#include "message/greeting_wire.h"
#include "message/inbox.h"
#include "message/message_queue.h"
#include "message/out_message.h"

namespace weft::message::detail {

using TimePoint = std::chrono::steady_clock::time_point;

// A frame to post, and the messages that it carries, which the session keeps until they are sent or
// have failed. The owner adds the payload: behind the header of a MESSAGE, between the headers of a
// JOINED frame, and the pieces of an OFFER.
struct Emission {
  Frame frame;
  std::vector<OutMessage*> messages;
};

// A new status of a message, to be reported to the application.
struct Change {
  OutPointer message;
  Status status;
};

// Not thread-safe: belongs to the loop's thread.
class Session {
 public:
  Session(const Terms& ours, const Terms& peers);

  // --- Sending
  [[nodiscard]] const Terms& peer_terms() const { return peers_; }
  // Messages up to this length are sent in a frame; longer ones are offered.
  [[nodiscard]] std::uint32_t eager_bytes() const { return eager_bytes_; }
  void enqueue(OutPointer message);
  // The message is not sent: it fails with this errno.
  void refuse(OutPointer message, int error);
  // Messages in the queue, which no frame carries yet.
  [[nodiscard]] std::size_t waiting_messages() const { return waiting_.size(); }
  [[nodiscard]] std::uint64_t waiting_bytes() const { return waiting_bytes_; }
  // Whether what waits is enough for a frame, so that more would not share it.
  [[nodiscard]] bool fills_frame() const {
    return waiting_bytes_ + waiting_.size() * Frame::part_header_bytes >= joined_bytes_;
  }
  // No message follows: CLOSE is sent when all messages are sent, and delivered where wanted.
  void close() { closing_ = true; }
  // Whether next() has something to do: a frame, or a wait that begins or ends.
  [[nodiscard]] bool has_next() const {
    return !waiting_.empty() || close_due() || credit_wait_.is_waiting() || update_due();
  }
  // The next frame to post; nothing if there is none, or if it has to wait.
  [[nodiscard]] std::optional<Emission> next(TimePoint now);
  // A Send has completed that carried this many messages: the oldest that were not offered.
  void on_sent(std::size_t messages);
  // The next status to report.
  [[nodiscard]] std::optional<Change> take_change();
  [[nodiscard]] bool has_changes() const { return !changes_.empty(); }
  // The connection has ended: every message fails that is not sent, or not delivered where the
  // application has asked for that.
  void fail_all(int error);

  [[nodiscard]] const CreditWait& credit_wait() const { return credit_wait_; }

  // --- Receiving
  enum class FrameResult {
    violation,
    kept,      // the slot is in use until the application has its messages
    released,  // the receive can be posted again, and its credit is counted as restored
  };
  [[nodiscard]] FrameResult on_frame(Bytes bytes, std::uint32_t slot);
  // What was wrong with the frame.
  [[nodiscard]] const char* violation() const { return violation_; }
  // The next message to fetch; null if there is none. It stays at its address until taken.
  [[nodiscard]] InMessage* next_fetch() { return inbox_.next_fetch(); }
  // All bytes of a message are here. To be called in the order of next_fetch().
  void on_fetched(InMessage& message);
  [[nodiscard]] bool has_ready() const { return inbox_.has_ready(); }
  // The next message in order; only where has_ready().
  [[nodiscard]] InMessage take() { return inbox_.take(); }
  // The application's handler has returned. The peer gets the credit by restore().
  void handed_over(const InMessage& message);
  // A receive is posted again in the place of one whose messages were handed over.
  void restore() { credits_.restore(); }
  // The peer has sent its CLOSE; finished: and all its messages were taken.
  [[nodiscard]] bool closed_by_peer() const { return peer_closed_; }
  [[nodiscard]] bool finished_by_peer() const { return peer_closed_ && inbox_.empty(); }
  [[nodiscard]] std::size_t inbox_messages() const { return inbox_.size(); }

 private:
  [[nodiscard]] FrameResult refuse(const char* why);
  [[nodiscard]] bool accept_counts(const Frame& frame);
  [[nodiscard]] bool update_due() const;
  [[nodiscard]] bool close_due() const;
  [[nodiscard]] Emission emit(Kind kind);
  [[nodiscard]] Emission emit_messages();
  [[nodiscard]] OutMessage* take_waiting();
  [[nodiscard]] bool is_offered(const OutMessage& message) const {
    return message.bytes > eager_bytes_;
  }
  void join_waiting(Emission& emission);
  void complete(OutPointer message);

  Terms ours_;
  Terms peers_;
  std::uint32_t eager_bytes_;  // the smaller limit of both sides
  std::size_t joined_bytes_;   // the longest JOINED frame
  Credits credits_;
  CreditWait credit_wait_;

  // Messages that are sent. Each is in one of the first three queues, in order, until it is sent.
  MessageQueue waiting_;
  MessageQueue unsent_;   // their Sends have not completed
  MessageQueue offered_;  // the peer has not fetched them
  std::uint64_t waiting_bytes_ = 0;
  struct Numbered {
    Count number = 0;
    OutPointer message;
  };
  std::deque<Numbered> unconfirmed_;  // with `confirm`, and not delivered
  Count framed_ = 0;                  // messages that frames have carried
  Count peer_delivered_ = 0;          // of these, as the peer has reported
  Count peer_fetched_ = 0;
  std::deque<Change> changes_;
  bool closing_ = false;
  bool close_sent_ = false;

  // Messages that are received.
  Inbox inbox_;
  bool peer_closed_ = false;
  // An UPDATE is due: something was fetched, delivered with `confirm`, or the peer wants an answer.
  bool update_owed_ = false;
  const char* violation_ = "";
};

}  // namespace weft::message::detail
