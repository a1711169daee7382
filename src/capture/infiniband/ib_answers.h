// The responses to the Reads and atomics of one side. Each packet is placed by its PSN, which lies
// in the range that its request has opened (InfiniBand Architecture Specification, volume 1,
// §9.7.5.1.9), whatever the order of the packets. Requests end in their own order.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "capture/infiniband/ib_path.h"
#include "capture/infiniband/ib_segment.h"
#include "weft/capture/budget.hpp"
#include "weft/capture/limits.hpp"

namespace weft::capture {

class IbAnswers {
 public:
  using Limits = InfinibandLimits::Answers;
  struct Request {
    std::uint32_t psn = 0;  // first PSN of the response
    bool atomic = false;
    std::uint32_t key = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
  };

  IbAnswers(const Limits& limits, Budget& budget, TrafficSink& sink, IbPath& path,
            InfinibandCounts& counts)
      : limits_(limits), budget_(budget), sink_(sink), path_(path), counts_(counts) {}
  IbAnswers(const IbAnswers&) = delete;
  IbAnswers& operator=(const IbAnswers&) = delete;
  ~IbAnswers();

  // The first request of the capture is the first one of the connection.
  void begin_with_handshake() { begun_before_ = false; }
  // Registers a request. `origin` is that of the responder, here and below.
  void expect(const Origin& origin, const Request& request);
  // Handles a request that was sent again. Returns the PSN that identifies the open request with
  // `psn` in its response; nothing if it is not open.
  std::optional<std::uint32_t> on_repeated_request(std::uint32_t psn);
  // Adds a response packet. `may_come`: its request may still arrive. `was_passed`: all requests up
  // to there were passed on, and none was lost.
  void add(const Origin& origin, const IbSegment& segment, bool may_come, bool was_passed);
  // Returns whether `psn` belongs to the response to an open request.
  [[nodiscard]] bool awaits(std::uint32_t psn) { return find(psn) != nullptr; }
  void on_requests_lost() { requests_lost_ = true; }
  // Returns whether a response lacks packets, or waits for its request.
  [[nodiscard]] bool waits() const { return !open_.empty() || !early_.empty(); }
  // Call it for each packet of the connection.
  void watch(const Origin& origin);
  void finish(const Origin& origin);

 private:
  struct Open {
    Request request{};
    std::uint64_t packets = 0;  // 0: not known yet
    std::vector<bool> have{};   // one bit for each packet
    std::uint64_t have_packets = 0;
    std::size_t budgeted = 0;  // bytes taken from the budget
    std::uint64_t since = 0;   // packets of the connection when it was opened
    bool complete = false;
    // For the rest of it, so the response may contain another First packet.
    bool repeated = false;
    Stamp completed{};  // the latest packet
    std::uint64_t original = 0;

    // Returns whether the last packet of the response was captured.
    [[nodiscard]] bool has_last() const {
      return packets != 0 && have.size() >= packets && have[packets - 1];
    }
  };
  struct Early {
    Origin origin;
    HeldIbSegment segment;
    std::uint64_t since = 0;
  };

  [[nodiscard]] Open* find(std::uint32_t psn);
  [[nodiscard]] Open* find_for(const IbSegment& segment);
  [[nodiscard]] bool may_answer(const IbSegment& segment, const Open& open) const;
  // Extends the bit map to packet `index`. Returns false if the budget is used up.
  [[nodiscard]] bool extend(Open& open, std::size_t index);
  void pop_first();
  void place(const Origin& origin, const IbSegment& segment, Open& open);
  [[nodiscard]] std::optional<Violation> broken_rule(const IbSegment& segment, const Open& open,
                                                     std::uint64_t index) const;
  void place_atomic(const Origin& origin, const IbSegment& segment, Open& open);
  void repeat(const Origin& origin, const IbSegment& segment);
  // Returns whether the request of a response was registered before, so that it has ended if it is
  // not open.
  [[nodiscard]] bool was_expected(std::uint32_t psn) const;
  void unknown(const Origin& origin, const IbSegment& segment);
  void retry_early(bool give_up);
  void close(const Origin& origin, const Open& open);
  void close_complete(const Origin& origin);
  void give_up_first(const Origin& origin);
  void drop_first(const Origin& origin);

  const Limits& limits_;
  Budget& budget_;
  TrafficSink& sink_;
  IbPath& path_;
  InfinibandCounts& counts_;
  std::deque<Open> open_;  // in the order of their PSNs; the first is incomplete
  std::deque<Early> early_;
  bool requests_lost_ = false;              // a repeated request may be among them
  bool begun_before_ = true;                // there may be requests before the first one
  std::uint64_t now_ = 0;                   // packets of the connection
  std::optional<std::uint32_t> first_psn_;  // of the first request
  std::uint32_t end_psn_ = 0;               // after the last request, as far as its width is known
};

}  // namespace weft::capture
