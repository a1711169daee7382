// A connection without I/O: frames in, frames out, and what became of each message. It sees no
// queue pair, no thread and no clock; what it sends is posted, in order, by whoever drives it.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "message/credits.h"
#include "message/frame_wire.h"
#include "message/greeting_wire.h"
#include "weft/message/status.hpp"

namespace weft::message::detail {

using TimePoint = std::chrono::steady_clock::time_point;

// A message on its way out. Its memory is kept by what is derived from it, until `sent` or
// `failed`.
struct OutMessage {
  OutMessage() = default;
  virtual ~OutMessage() = default;
  OutMessage(const OutMessage&) = delete;
  OutMessage& operator=(const OutMessage&) = delete;

  std::uint32_t type = 0;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  bool confirm = false;
  // Written by the loop's thread, read by any.
  std::atomic<Status> status{Status::waiting};
  std::atomic<int> error{0};

 private:
  friend class Session;
  bool acknowledged_ = false;
};
using OutPointer = std::shared_ptr<OutMessage>;

// A message that has come, or is to be fetched.
struct InMessage {
  std::uint32_t type = 0;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  bool confirm = false;
  bool ready = false;
  std::uint32_t slot = 0;                  // the receive that it came in
  std::size_t offset = 0;                  // of its payload in there
  bool last = true;                        // of those that came in the same receive
  std::vector<verbs::RemoteSlice> pieces;  // where to fetch it from; none: it is in the slot
};

// A frame to post, and the messages that it carries. Of a message the payload goes behind it, of
// joined ones between; of an offer the pieces are missing.
struct Emission {
  Frame frame;
  std::vector<OutPointer> messages;
};

// What has become of a message, for the user to be told.
struct Change {
  OutPointer message;
  Status status;
};

class Session {
 public:
  Session(const Terms& ours, const Terms& peers);

  // --- Sending
  [[nodiscard]] const Terms& peer_terms() const { return peers_; }
  // What is longer is offered.
  [[nodiscard]] std::uint32_t eager_bytes() const { return eager_bytes_; }
  void enqueue(OutPointer message);
  [[nodiscard]] std::size_t waiting_messages() const { return waiting_.size(); }
  [[nodiscard]] std::uint64_t waiting_bytes() const { return waiting_bytes_; }
  // No messages after this; a CLOSE follows what is under way.
  void close() { closing_ = true; }
  // Asks the peer for a sign of life.
  void ask() { ask_ = true; }
  // The next frame to post; nothing where there is none, or it has to wait.
  [[nodiscard]] std::optional<Emission> next(TimePoint now);
  // A Send has completed: of so many messages, the oldest that were not offered.
  void on_sent(std::size_t messages);
  // The next message whose status has changed.
  [[nodiscard]] std::optional<Change> take_change();
  [[nodiscard]] bool has_changes() const { return !changes_.empty(); }
  // The connection has ended: what is neither sent nor delivered as it should be has failed.
  void fail_all(int error);

  [[nodiscard]] bool waits_for_credits() const { return waiting_since_.has_value(); }
  [[nodiscard]] std::uint64_t credit_waits() const { return credit_waits_; }
  [[nodiscard]] std::chrono::nanoseconds waited_for_credits(TimePoint now) const;

  // --- Receiving
  enum class Taken {
    violation,
    kept,      // the slot is needed until handed_over()
    released,  // the receive can be posted again, and has been counted as such
  };
  [[nodiscard]] Taken on_frame(Bytes bytes, std::uint32_t slot);
  // What was wrong with the frame.
  [[nodiscard]] const char* violation() const { return violation_; }
  // The next message to fetch, which is from then on under way. It stays where it is.
  [[nodiscard]] InMessage* next_fetch();
  // The one that was first of those under way is there.
  void on_fetched(InMessage& message);
  [[nodiscard]] bool has_ready() const { return !inbox_.empty() && inbox_.front().ready; }
  // The next message in order; only where has_ready().
  [[nodiscard]] InMessage take();
  // Its callback has returned. The credit is granted by restore(), when there is a receive again.
  void handed_over(const InMessage& message);
  void restore() { credits_.restore(); }
  // The peer sends no more, and all it sent was taken.
  [[nodiscard]] bool finished_by_peer() const { return peer_closed_ && inbox_.empty(); }
  [[nodiscard]] bool closed_by_peer() const { return peer_closed_; }
  [[nodiscard]] std::size_t inbox_messages() const { return inbox_.size(); }

 private:
  [[nodiscard]] Taken refuse(const char* why);
  // What each frame tells of our messages.
  [[nodiscard]] bool take_counts(const Frame& frame);
  [[nodiscard]] bool update_due() const;
  [[nodiscard]] bool close_due() const;
  [[nodiscard]] Emission emit(Kind kind);
  [[nodiscard]] Emission emit_messages();
  [[nodiscard]] OutPointer take_waiting();
  [[nodiscard]] bool is_offered(const OutMessage& message) const {
    return message.bytes > eager_bytes_;
  }
  void join_waiting(Emission& emission);
  void put_in_inbox(Frame& frame, std::uint32_t slot);
  void complete(OutPointer message);
  void note_wait(bool waits, TimePoint now);

  Terms ours_;
  Terms peers_;
  std::uint32_t eager_bytes_;
  std::size_t joined_bytes_;  // the longest joined frame
  Credits credits_;

  std::deque<OutPointer> waiting_;
  std::uint64_t waiting_bytes_ = 0;
  std::deque<OutPointer> unsent_;   // on their way: the Send has not completed
  std::deque<OutPointer> offered_;  // not fetched yet
  struct Numbered {
    Count number;
    OutPointer message;
  };
  std::deque<Numbered> unconfirmed_;
  Count sent_ = 0;            // messages of ours that were framed
  Count peer_delivered_ = 0;  // of these
  Count peer_fetched_ = 0;
  std::deque<Change> changes_;
  bool closing_ = false;
  bool closed_ = false;

  std::deque<InMessage> inbox_;
  std::size_t fetching_ = 0;  // of the inbox, those that were looked at for fetching
  Count delivered_ = 0;
  Count fetched_ = 0;
  bool peer_closed_ = false;
  bool owes_ = false;  // an UPDATE: something was fetched, confirmed, or asked for
  bool ask_ = false;
  const char* violation_ = "";

  std::optional<TimePoint> waiting_since_;
  std::uint64_t credit_waits_ = 0;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace weft::message::detail
