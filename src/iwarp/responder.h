// Answers the peer's reads and atomics: a queue of at most IRD requests, answered in order (RFC
// 5040 §5.2, RFC 7306 §5.2). Answers are built when there is room, not when requests arrive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "iwarp/host.h"
#include "iwarp/segment.h"
#include "iwarp/transmitter.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace weft::iwarp {

class Responder {
 public:
  struct Options {
    std::uint16_t ird = 1;  // on the wire
  };

  Responder(const Options& options, Host& host, Transmitter& out)
      : options_(options), host_(host), out_(out) {}

  // The place of a request among all messages that the peer's requester has sent.
  struct Place {
    std::uint64_t number = 0;       // from 1
    std::uint64_t held_before = 0;  // Receiver::held() when it arrived
  };

  // Queues a request that has arrived. An error code ends the stream.
  [[nodiscard]] TerminateRaised take_read(const Segment& segment, const wire::ReadRequest& request,
                                          Place place);
  [[nodiscard]] TerminateRaised take_atomic(const Segment& segment,
                                            const wire::AtomicRequest& request, Place place);

  // Adds FPDUs of the oldest answer, until it is complete or there is no more room. False: there is
  // nothing to add. `placed`: Receiver::placed(); an answer waits for messages that were held when
  // its request arrived. Sets `refusal` where the request is at fault; fault_report() quotes it.
  bool build(TerminateRaised& refusal, std::uint64_t placed);
  // build() would add something.
  [[nodiscard]] bool may_build(std::uint64_t placed) const {
    return !queue_.empty() && queue_.front().place.held_before <= placed;
  }
  [[nodiscard]] bool mid_message() const { return !queue_.empty() && queue_.front().started; }
  [[nodiscard]] bool idle() const { return queue_.empty(); }
  // There are answers to build, all of them to empty reads (see proofs.h).
  [[nodiscard]] bool only_proofs_due(std::uint64_t placed) const {
    return may_build(placed) &&
           std::all_of(queue_.begin(), queue_.end(), [](const Request& request) {
             return !request.atomic && request.read.size_bytes == 0;
           });
  }
  // Quotes the request that build() refused; its code is not set.
  [[nodiscard]] const wire::Terminate& fault_report() const { return fault_report_; }
  // Place::number of that request.
  [[nodiscard]] std::uint64_t fault_number() const { return fault_number_; }

 private:
  struct Request {
    bool atomic = false;
    bool started = false;  // some segments of the answer are built, and some are missing
    std::uint32_t sent_bytes = 0;
    Place place{};
    wire::ReadRequest read{};
    wire::AtomicRequest operands{};
    Segment segment{};
  };

  [[nodiscard]] TerminateRaised enqueue(Request request);
  [[nodiscard]] TerminateRaised answer_read(Request& request);
  [[nodiscard]] TerminateRaised answer_atomic(Request& request);
  [[nodiscard]] Memory atomic_target(const wire::AtomicRequest& request, bool& shown);
  void report(const Request& request);

  Options options_;
  Host& host_;
  Transmitter& out_;
  std::deque<Request> queue_;
  std::uint32_t atomic_msn_ = 1;  // of queue 3
  wire::Terminate fault_report_;
  std::uint64_t fault_number_ = 0;
};

}  // namespace weft::iwarp
