// Which of one side's Read and atomic requests an answer belongs to.
//
// Answers carry no number: they come in the order of the requests (RFC 5040 §5.5), and a Read's
// names its sink. That is enough while nothing is missing. Where a request or an answer may not
// have been captured, an answer is given to a request only if no other can be meant: programs use
// the same sink again and again.
#pragma once

#include <cstdint>
#include <deque>

namespace weft::capture {

class RequestMatcher {
 public:
  // Requests without an answer that are remembered: 64 KiB of them. RFC 6581 §5.1 allows more (IRD
  // has 14 bits), adapters do not.
  static constexpr std::size_t max_requests = 1024;

  struct Request {
    std::uint64_t frame = 0;
    std::uint32_t msn = 0;
    bool seen = true;  // false: a gap in the numbers says that there was one, and no more
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
    bool atomic = false;
    std::uint32_t atomic_id = 0;
    std::uint32_t sink_stag = 0;
    std::uint64_t sink_offset = 0;
    std::uint64_t bytes = 0;
    bool last = true;
  };
  struct Match {
    bool known = false;       // `request` is the one
    bool unexpected = false;  // nothing is missing, and yet there is no such request
    Request request;
  };

  // The stream was seen from its start, but its FPDUs from somewhere in it on.
  void begin_late() {
    out_of_step_ = true;
    lost_requests_bytes_ = unknown_bytes;
  }
  void begin_with_answers_late() { out_of_step_ = true; }
  // Earlier requests may be under way, of which nothing is known.
  void begin_in_mid_stream() { mid_stream_ = out_of_step_ = true; }
  // What the other side has sent before is unknown. Until FPDUs are found in a stream it waits, and
  // the other one goes on: an answer may be told behind requests that are younger.
  void begin_with_answers_unknown() {
    out_of_step_ = true;
    lost_answers_bytes_ = unknown_bytes;
  }
  // How many requests may be under way at a time, by the handshake; 0: unknown.
  void set_depth(std::size_t depth) { depth_ = depth; }

  // False: the number is out of order, and nothing was lost that would explain it.
  bool on_request(const Request& request);
  // Bytes of the requester's stream, and of the other side's, that were not captured.
  void on_requests_lost(std::uint64_t bytes) { lost_requests_bytes_ += bytes; }
  void on_answers_lost(std::uint64_t bytes) { lost_answers_bytes_ += bytes; }

  [[nodiscard]] Match match(const Answer& answer);
  [[nodiscard]] std::uint32_t last_msn() const { return last_msn_; }
  // It cannot be told at present which request is next.
  [[nodiscard]] bool uncertain() const { return uncertain_; }

 private:
  // More than any stream has.
  static constexpr std::uint64_t unknown_bytes = 1ULL << 62;

  [[nodiscard]] static bool fits(const Request& request, const Answer& answer);
  // Then nobody knows whether the capture is out of order, or an earlier request is meant.
  [[nodiscard]] bool too_young(const Request& request, const Answer& answer) const {
    return out_of_step_ && request.seen && answer.frame < request.frame;
  }
  [[nodiscard]] bool requests_may_be_missing() const;
  void remember(const Request& request);
  void look_for_shared_sinks(const Request& request);
  Request* in_order(const Answer& answer, bool& unexpected);
  Request* after_loss(const Answer& answer);

  std::deque<Request> requests_;  // without (all of) their answer, oldest first
  std::uint32_t last_msn_ = 0;
  std::uint64_t lost_requests_bytes_ = 0;  // since the last request
  std::uint64_t lost_answers_bytes_ = 0;   // since the last answer
  std::uint64_t answered_unseen_ = 0;      // answers to requests that were lost since the last one
  std::size_t depth_ = 0;
  bool uncertain_ = false;
  bool mid_stream_ = false;
  bool out_of_step_ = false;
  bool sinks_shared_ = false;  // by requests that were under way together, with other sources
};

}  // namespace weft::capture
