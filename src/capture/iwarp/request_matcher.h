// Finds the Read or atomic request of one side that a response belongs to.
//
// Responses have no number: they come in the order of the requests (RFC 5040 §5.5), and a Read
// Response has the sink of its request. That is sufficient while nothing is missing. If a request
// or response may be missing in the capture, a response is matched only if no other request is
// possible, because programs use the same sink repeatedly.
#pragma once

#include <cstdint>
#include <deque>

namespace weft::capture {

class RequestMatcher {
 public:
  // Limit on requests without a response (64 KiB of them). RFC 6581 §5.1 allows more (IRD has 14
  // bits), but adapters do not.
  static constexpr std::size_t max_requests = 1024;
  // Devices answer Reads and atomics by themselves, and TCP repeats a lost packet sooner. So after
  // a pause of this length between them none is under way that began before the capture.
  static constexpr std::int64_t pause_ns = 1'000'000'000;

  struct Request {
    std::uint64_t frame = 0;
    std::int64_t time_ns = 0;
    std::uint64_t position = 0;  // of the requester's stream, behind the request
    std::uint32_t msn = 0;
    bool seen = true;  // false: only a gap in the numbers shows that it exists
    bool atomic = false;
    std::uint32_t atomic_id = 0;
    std::uint32_t sink_stag = 0;
    std::uint64_t sink_offset = 0;
    std::uint32_t length_bytes = 0;
    std::uint32_t source_stag = 0;
    std::uint64_t source_offset = 0;
    std::uint64_t answered_bytes = 0;
  };
  struct Answer {
    std::uint64_t frame = 0;
    std::int64_t time_ns = 0;
    bool atomic = false;
    std::uint32_t atomic_id = 0;
    std::uint32_t sink_stag = 0;
    std::uint64_t sink_offset = 0;
    std::uint64_t bytes = 0;
    bool last = true;
  };
  struct Match {
    bool known = false;       // `request` is the request of the response
    bool unexpected = false;  // nothing is missing, and yet no request matches
    Request request;
  };

  // The stream was captured from its start, but its FPDUs were recognised later.
  void begin_late() {
    out_of_step_ = true;
    lost_requests_bytes_ = unknown_bytes;
  }
  void begin_with_answers_late() { out_of_step_ = true; }
  // Earlier requests may be under way, and nothing is known about them.
  void begin_in_mid_stream() { mid_stream_ = out_of_step_ = true; }
  // The earlier part of the other side's stream is unknown. Until FPDUs are found in a stream its
  // bytes wait, while the other stream goes on; so a response may be reported after requests that
  // are younger.
  void begin_with_answers_unknown() {
    out_of_step_ = true;
    lost_answers_bytes_ = unknown_bytes;
  }
  // Sets the limit on requests under way from the handshake; 0: unknown.
  void set_depth(std::size_t depth) { depth_ = depth; }

  // Returns false if the number is out of order and no loss explains it.
  bool on_request(const Request& request);
  // Count the bytes of the requester's stream, and of the other side's, that were not captured.
  void on_requests_lost(std::uint64_t bytes) { lost_requests_bytes_ += bytes; }
  void on_answers_lost(std::uint64_t bytes) {
    lost_answers_bytes_ += bytes;
    // The lost bytes may be the responses.
    unanswered_ = 0;
    answers_ahead_.clear();
  }

  // The responder has acknowledged the requester's stream up to this position. What it sends later
  // may answer requests before that only.
  void on_received(std::uint64_t position) { received_ = position; }

  [[nodiscard]] Match match(const Answer& answer);
  [[nodiscard]] std::uint32_t last_msn() const { return last_msn_; }
  // Returns true if it is unknown at present which request is next.
  [[nodiscard]] bool uncertain() const { return uncertain_; }

 private:
  // More than any stream has.
  static constexpr std::uint64_t unknown_bytes = 1ULL << 62;

  [[nodiscard]] static bool fits(const Request& request, const Answer& answer);
  // A response before its request, or before the acknowledgement of its request: either the capture
  // is out of order, or it belongs to an earlier request.
  [[nodiscard]] bool precedes_request(const Request& request, const Answer& answer) const {
    const bool unreceived = received_ != 0 && received_ < request.position;
    return out_of_step_ && request.seen && (answer.frame < request.frame || unreceived);
  }
  [[nodiscard]] bool requests_may_be_missing() const;
  // Returns whether a pause shows that nothing is under way before this request.
  [[nodiscard]] bool begins_anew(const Request& request) const;
  void begin_in_step();
  void count_request(const Request& request);
  void count_answer(const Answer& answer);
  void remember(const Request& request);
  void look_for_shared_sinks(const Request& request);
  Request* in_order(const Answer& answer, bool& unexpected);
  Request* after_loss(const Answer& answer);

  std::deque<Request> requests_;  // without (complete) response, oldest first
  std::uint32_t last_msn_ = 0;
  std::uint64_t lost_requests_bytes_ = 0;  // since the last request
  std::uint64_t lost_answers_bytes_ = 0;   // since the last answer
  // Responses, since the last request, to requests that were lost.
  std::uint64_t answered_unseen_ = 0;
  std::uint64_t unanswered_ = 0;  // of the requests that were seen, by their number only
  // Frames of responses that are not counted for a request yet. Their requests may be reported
  // later, because FPDUs were found later in that stream.
  std::deque<std::uint64_t> answers_ahead_;
  std::int64_t last_ns_ = 0;  // time of the last request or response; 0: none
  std::size_t depth_ = 0;
  std::uint64_t received_ = 0;  // by the responder; 0: unknown
  bool uncertain_ = false;
  bool mid_stream_ = false;
  bool out_of_step_ = false;
  // Requests with different sources used the same sink at the same time.
  bool sinks_shared_ = false;
};

}  // namespace weft::capture
