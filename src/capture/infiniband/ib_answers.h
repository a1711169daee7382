// What a responder sends back to Reads and atomics: each packet is placed by its PSN, which lies in
// the range that the request has opened (InfiniBand Architecture Specification, volume 1,
// §9.7.5.1.9), whatever the order. Requests end in their own order.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "capture/infiniband/ib_segment.h"
#include "weft/capture/budget.hpp"
#include "weft/capture/limits.hpp"

namespace weft::capture {

// What both directions of a connection know of its path.
struct IbPath {
  std::uint32_t mtu_bytes = 0;  // 0: not known yet

  // The payload of a packet that is not the last one of its message.
  void learn(std::uint64_t full_packet_bytes) {
    if (mtu_bytes == 0 && is_mtu(full_packet_bytes)) {
      mtu_bytes = static_cast<std::uint32_t>(full_packet_bytes);
    }
  }
  // What a packet should have had that is neither the last of its message nor as long as others.
  [[nodiscard]] std::uint64_t full_bytes(std::uint64_t found) const;
  [[nodiscard]] static bool is_mtu(std::uint64_t bytes);
  // How many packets so many bytes take; nothing where that is not known.
  [[nodiscard]] std::optional<std::uint64_t> packets_of(std::uint64_t bytes) const;
};

class IbAnswers {
 public:
  using Limits = InfinibandLimits::Answers;
  struct Request {
    std::uint32_t psn = 0;  // of the first packet of the answer
    bool atomic = false;
    std::uint32_t key = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
  };

  IbAnswers(const Limits& limits, Budget& budget, TrafficSink& sink, IbPath& path)
      : limits_(limits), budget_(budget), sink_(sink), path_(path) {}
  IbAnswers(const IbAnswers&) = delete;
  IbAnswers& operator=(const IbAnswers&) = delete;
  ~IbAnswers();

  // `origin`: of the responder, here and below.
  void expect(const Origin& origin, const Request& request);
  // The PSN that names the request whose answer has `psn` in it, if that is still open: it was
  // asked for again.
  std::optional<std::uint32_t> asked_again(std::uint32_t psn);
  // `may_come`: the request may not have been passed on yet. `was_passed`: requests up to there
  // were passed on, and none was lost.
  void add(const Origin& origin, const IbSegment& segment, bool may_come, bool was_passed);
  void on_requests_lost() { requests_lost_ = true; }
  // To be called for each packet of the connection.
  void watch(const Origin& origin);
  void finish(const Origin& origin);

 private:
  struct Open {
    Request request{};
    std::uint64_t packets = 0;  // 0: not known yet
    std::vector<bool> have{};   // by packet
    std::uint64_t have_packets = 0;
    std::size_t budgeted = 0;  // bytes of the budget
    bool complete = false;
    bool asked_again = false;  // the rest of it: its answer has a First packet of its own
    Stamp completed{};
    std::uint64_t original = 0;
  };
  struct Early {
    Origin origin;
    HeldIbSegment segment;
    std::uint64_t since = 0;
  };

  [[nodiscard]] Open* find(std::uint32_t psn);
  // Makes room for the account of one more packet. False: there is none.
  [[nodiscard]] bool extend(Open& open, std::size_t index);
  void pop_first();
  void place(const Origin& origin, const IbSegment& segment, Open& open);
  [[nodiscard]] std::optional<Violation> broken_rule(const IbSegment& segment, const Open& open,
                                                     std::uint64_t index) const;
  void place_atomic(const Origin& origin, const IbSegment& segment, Open& open);
  void repeat(const Origin& origin, const IbSegment& segment);
  void unknown(const Origin& origin, const IbSegment& segment);
  void retry_early(bool give_up);
  void close(const Origin& origin, const Open& open);
  void close_complete(const Origin& origin);
  void give_up_first(const Origin& origin);

  const Limits& limits_;
  Budget& budget_;
  TrafficSink& sink_;
  IbPath& path_;
  std::deque<Open> open_;
  std::deque<Early> early_;
  bool requests_lost_ = false;       // one that asked again may be among them
  std::uint64_t now_ = 0;            // packets of the connection
  std::uint64_t blocked_since_ = 0;  // the first is not complete, a later one is; 0: not so
};

}  // namespace weft::capture
