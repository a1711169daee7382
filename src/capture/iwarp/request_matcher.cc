#include "capture/iwarp/request_matcher.h"

#include <algorithm>

#include "wire/ddp.h"
#include "wire/mpa.h"
#include "wire/rdmap.h"

namespace weft::capture {
namespace {

// Size of the shortest request on the wire.
constexpr std::size_t request_fpdu_bytes =
    wire::fpdu_bytes(wire::DdpUntagged::header_bytes + wire::ReadRequest::header_bytes);

// How many earlier requests are compared for shared sinks.
constexpr std::size_t shared_sink_horizon = 64;

// Returns the minimum number of stream bytes that the missing responses of a request have.
std::uint64_t unanswered_bytes(const RequestMatcher::Request& request) {
  if (!request.seen) return 0;
  if (request.atomic) return wire::AtomicResponse::header_bytes;
  return request.length_bytes - request.answered_bytes;
}

}  // namespace

bool RequestMatcher::requests_may_be_missing() const {
  return lost_requests_bytes_ >= request_fpdu_bytes;
}

// Where the capture begins in the middle of a stream, requests before it may be under way for as
// long as one follows the other.
bool RequestMatcher::begins_anew(const Request& request) const {
  return unanswered_ == 0 && lost_requests_bytes_ == 0 && lost_answers_bytes_ == 0 &&
         last_msn_ != 0 && request.msn == last_msn_ + 1 && last_ns_ != 0 &&
         request.time_ns - last_ns_ >= pause_ns;
}

void RequestMatcher::begin_in_step() {
  requests_.clear();
  answers_ahead_.clear();
  answered_unseen_ = 0;
  mid_stream_ = out_of_step_ = uncertain_ = sinks_shared_ = false;
}

void RequestMatcher::count_request(const Request& request) {
  last_ns_ = std::max(last_ns_, request.time_ns);
  while (!answers_ahead_.empty() && answers_ahead_.front() < request.frame) {
    answers_ahead_.pop_front();
  }
  if (answers_ahead_.empty()) {
    ++unanswered_;
  } else {
    answers_ahead_.pop_front();
  }
}

void RequestMatcher::count_answer(const Answer& answer) {
  last_ns_ = std::max(last_ns_, answer.time_ns);
  if (!answer.last) return;
  if (unanswered_ > 0) {
    --unanswered_;
  } else if (answers_ahead_.size() < max_requests) {
    answers_ahead_.push_back(answer.frame);
  }
}

// Registers a request. A gap in the numbers is explained by lost bytes, and the requests in it are
// remembered as unseen.
bool RequestMatcher::on_request(const Request& request) {
  if (mid_stream_ || out_of_step_) {
    if (begins_anew(request)) begin_in_step();
    count_request(request);
  }
  // RFC 5041 §5.3: the first MSN is 1.
  std::uint32_t skipped = request.msn - last_msn_ - 1;
  // The quotient is the largest number of requests that the lost bytes can have contained.
  const bool explained = skipped <= lost_requests_bytes_ / request_fpdu_bytes;
  // The skipped requests were sent before the capture.
  if (mid_stream_ && last_msn_ == 0 && !explained) skipped = 0;
  bool in_order = true;
  if (skipped > 0 && !explained) {
    in_order = lost_requests_bytes_ != 0;
    uncertain_ = true;
  } else {
    const std::uint64_t unanswered = skipped - std::min<std::uint64_t>(answered_unseen_, skipped);
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(unanswered, max_requests); ++i) {
      remember({.seen = false});
    }
  }
  answered_unseen_ = 0;
  lost_requests_bytes_ = 0;
  last_msn_ = request.msn;
  if (mid_stream_) look_for_shared_sinks(request);
  remember(request);
  return in_order;
}

// Adds a request. While the matching is uncertain, requests may stay in the list though they are
// answered. The negotiated depth then bounds the list, because no more requests can be open.
void RequestMatcher::remember(const Request& request) {
  const std::size_t most = uncertain_ && depth_ > 0 ? depth_ : max_requests;
  while (requests_.size() >= most) requests_.pop_front();
  requests_.push_back(request);
}

// In a stream that began before the capture, a sink alone does not identify a request if several
// sources share it.
void RequestMatcher::look_for_shared_sinks(const Request& request) {
  const std::size_t count = std::min(requests_.size(), shared_sink_horizon);
  for (auto known = requests_.end() - static_cast<std::ptrdiff_t>(count); known != requests_.end();
       ++known) {
    const bool same_sink = known->seen && !known->atomic && !request.atomic &&
                           known->sink_stag == request.sink_stag &&
                           known->sink_offset == request.sink_offset;
    const bool same_source =
        known->source_stag == request.source_stag && known->source_offset == request.source_offset;
    if (same_sink && !same_source) sinks_shared_ = true;
  }
}

// Returns whether the response can belong to the request by kind, sink and length.
bool RequestMatcher::fits(const Request& request, const Answer& answer) {
  if (!request.seen) return true;
  if (request.atomic != answer.atomic) return false;
  if (request.atomic) return request.atomic_id == answer.atomic_id;
  // RFC 5040 §5.2.1: the sink of an empty Read has no meaning.
  if (request.length_bytes == 0) return answer.bytes == 0;
  // An offset before the sink wraps to a large number and is rejected by the tests below.
  const std::uint64_t within = answer.sink_offset - request.sink_offset;
  if (answer.sink_stag != request.sink_stag || within < request.answered_bytes) return false;
  if (within > request.length_bytes) return false;
  const std::uint64_t rest = request.length_bytes - within;
  return answer.last ? answer.bytes == rest : answer.bytes < rest;
}

// Finds the request of a response, and removes it with its last part.
RequestMatcher::Match RequestMatcher::match(const Answer& answer) {
  Match match;
  if (mid_stream_ || out_of_step_) count_answer(answer);
  Request* request = lost_answers_bytes_ > 0 || uncertain_ ? after_loss(answer)
                                                           : in_order(answer, match.unexpected);
  lost_answers_bytes_ = 0;
  if (!request) return match;
  match.known = request->seen && !sinks_shared_;
  match.request = *request;
  if (request->seen && !request->atomic && request->length_bytes > 0) {
    request->answered_bytes = answer.sink_offset - request->sink_offset + answer.bytes;
  }
  if (answer.last) requests_.pop_front();
  return match;
}

// The normal case: the response must belong to the oldest request.
RequestMatcher::Request* RequestMatcher::in_order(const Answer& answer, bool& unexpected) {
  if (requests_.empty()) {
    if (requests_may_be_missing() && answer.last) ++answered_unseen_;
    unexpected = !requests_may_be_missing() && !mid_stream_;
    return nullptr;
  }
  // Nothing is known of an unseen request, so any response may belong to it.
  Request& oldest = requests_.front();
  const bool next = !oldest.seen || oldest.atomic || oldest.length_bytes == 0 ||
                    answer.sink_offset - oldest.sink_offset == oldest.answered_bytes;
  const bool precedes = precedes_request(oldest, answer);
  if (next && fits(oldest, answer) && !precedes) return &oldest;
  unexpected = !mid_stream_ && !precedes;
  uncertain_ = true;  // otherwise one wrong match would make all later ones wrong
  return nullptr;
}

// After a loss a response is matched only if exactly one request fits, and the lost bytes can
// contain the responses of all requests before it.
RequestMatcher::Request* RequestMatcher::after_loss(const Answer& answer) {
  const bool was_uncertain = uncertain_;
  uncertain_ = true;
  if (requests_may_be_missing()) return nullptr;
  auto found = requests_.end();
  // Bytes of responses that must have been lost if this request is the one.
  std::uint64_t skipped = 0;
  for (auto request = requests_.begin(); request != requests_.end(); ++request) {
    if (fits(*request, answer)) {
      if (found != requests_.end() || !request->seen) return nullptr;
      found = request;
    }
    skipped += unanswered_bytes(*request);
    if (!was_uncertain && skipped > lost_answers_bytes_) break;
  }
  if (found == requests_.end() || precedes_request(*found, answer)) return nullptr;
  uncertain_ = false;
  requests_.erase(requests_.begin(), found);
  return &requests_.front();
}

}  // namespace weft::capture
