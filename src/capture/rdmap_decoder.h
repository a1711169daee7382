// From DDP segments (RFC 5041) and RDMAP messages (RFC 5040, RFC 7306) to the traffic of a
// connection: read requests are matched to responses, sinks translated to sources.
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "capture/fpdu_search.h"
#include "capture/mpa_reader.h"
#include "capture/traffic.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::capture {

class RdmapDecoder {
 public:
  // Requests without an answer that are remembered of each side. RFC 6581 §5.1: IRD has 14 bits.
  static constexpr std::size_t max_requests = 16'384;

  RdmapDecoder(ConnectionId connection, TrafficSink& sink) : connection_(connection), sink_(sink) {}

  void on_fpdu(Side side, const Fpdu& fpdu);
  // Bytes of the side's stream are missing: what was to follow may have been among them.
  void on_lost(Side side, const Stamp& stamp, std::uint64_t bytes);
  void on_violation(Side side, const Stamp& stamp, const Violation& violation) {
    sink_.on_violation({.connection = connection_, .side = side, .stamp = stamp}, violation);
  }
  [[nodiscard]] FpduExpectation expectation(Side side) const;
  [[nodiscard]] bool terminated() const { return terminated_; }
  [[nodiscard]] bool saw_fpdus() const { return saw_fpdus_; }

 private:
  struct Request {
    std::uint32_t msn = 0;
    bool seen = true;  // false: a gap in the numbers says that there was one
    bool atomic = false;
    std::uint32_t sink_stag = 0;
    std::uint64_t sink_offset = 0;
    std::uint32_t length_bytes = 0;
    std::uint32_t source_stag = 0;
    std::uint64_t source_offset = 0;
    std::uint64_t answered_bytes = 0;
    std::uint32_t atomic_id = 0;
  };
  // Of what one side sends.
  struct Half {
    std::uint32_t send_msn = 0;  // of the message under way or the last one; 0: none yet
    bool send_open = false;
    std::uint32_t send_offset = 0;  // expected next
    std::uint32_t request_msn = 0;
    bool write_open = false;
    std::uint64_t write_message = 0;
    std::uint32_t write_stag = 0;
    std::uint64_t write_offset = 0;     // expected next
    std::deque<Request> requests;       // without an answer yet, oldest first
    bool answers_uncertain = false;     // a loss has left it open which of them is next
    std::uint64_t lost_since_send = 0;  // bytes of the stream since the last segment of this kind
    std::uint64_t lost_since_write = 0;
    std::uint64_t lost_since_request = 0;
    std::uint64_t lost_since_answer = 0;
    std::array<std::uint32_t, 4> stags{};
    std::size_t next_stag = 0;
  };

  // A segment and where it stands.
  struct Segment {
    Origin origin;
    Half& own;
    Half& peer;
    wire::RdmapOpcode opcode;
    bool last;
    Bytes payload;
    std::span<const MissingRange> missing;  // in the ULPDU: shifted by `header_bytes`
    std::size_t header_bytes;

    [[nodiscard]] bool whole() const { return missing.empty(); }
  };

  void tagged(Segment segment, const wire::TaggedView& view);
  void untagged(Segment segment, const wire::UntaggedView& view);
  void write(const Segment& segment, const wire::TaggedView& view);
  void answer(const Segment& segment, const wire::TaggedView& view);
  void send(const Segment& segment, const wire::UntaggedView& view);
  void immediate(const Segment& segment, const wire::UntaggedView& view);
  void read_request(const Segment& segment, const wire::UntaggedView& view);
  void atomic_request(const Segment& segment, const wire::UntaggedView& view);
  void atomic_answer(const Segment& segment);
  void terminate(const Segment& segment);

  void check_send_order(const Segment& segment, const wire::UntaggedView& view);
  void check_request_order(const Segment& segment, std::uint32_t msn);
  void remember(Half& own, const Request& request);
  // What an answer says of the request that it belongs to.
  struct Sink {
    std::uint32_t stag = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] static bool fits(const Request& request, const Sink& sink);
  // That request, which becomes the oldest; nullptr: none can be meant, or more than one. `lost`:
  // bytes of the stream since the last answer.
  static Request* match(Half& requester, const Sink& sink, std::uint64_t lost);
  static Request* match_after_loss(Half& requester, const Sink& sink, std::uint64_t lost);
  void report(const Segment& segment, Violation::Kind kind, std::uint64_t found = 0,
              std::uint64_t expected = 0) {
    sink_.on_violation(segment.origin, {.kind = kind, .found = found, .expected = expected});
  }

  [[nodiscard]] Half& half(Side side) { return side == Side::a ? a_ : b_; }
  [[nodiscard]] const Half& half(Side side) const { return side == Side::a ? a_ : b_; }

  ConnectionId connection_;
  TrafficSink& sink_;
  Half a_;
  Half b_;
  bool terminated_ = false;
  bool saw_fpdus_ = false;
};

}  // namespace weft::capture
