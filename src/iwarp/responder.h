// The other side's reads and atomics: a queue of at most IRD requests, answered in order.
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

  // Queues a request that arrived. An error code is what it deserves.
  [[nodiscard]] TerminateRaised take_read(const Segment& segment, const wire::ReadRequest& request);
  [[nodiscard]] TerminateRaised take_atomic(const Segment& segment,
                                            const wire::AtomicRequest& request);

  // Adds FPDUs of the oldest answer, to its end or to the end of the room there is. False: nothing
  // to add. When the request turns out to be wrong, sets `refusal`; fault_report() quotes it.
  bool build(TerminateRaised& refusal);
  [[nodiscard]] bool mid_message() const { return !queue_.empty() && queue_.front().started; }
  [[nodiscard]] bool idle() const { return queue_.empty(); }
  // There are answers to give, all of them to empty reads.
  [[nodiscard]] bool only_proofs_due() const {
    return !queue_.empty() && std::all_of(queue_.begin(), queue_.end(), [](const Request& request) {
      return !request.atomic && request.read.size_bytes == 0;
    });
  }
  [[nodiscard]] const wire::Terminate& fault_report() const { return fault_report_; }

 private:
  struct Request {
    bool atomic = false;
    bool started = false;
    std::uint32_t sent_bytes = 0;
    wire::ReadRequest read{};
    wire::AtomicRequest operands{};
    Segment segment{};
  };

  [[nodiscard]] TerminateRaised enqueue(Request request);
  [[nodiscard]] TerminateRaised answer_read(Request& request);
  [[nodiscard]] TerminateRaised answer_atomic(Request& request);
  void report(const Request& request);

  Options options_;
  Host& host_;
  Transmitter& out_;
  std::deque<Request> queue_;
  std::uint32_t atomic_msn_ = 1;
  wire::Terminate fault_report_;
};

}  // namespace weft::iwarp
