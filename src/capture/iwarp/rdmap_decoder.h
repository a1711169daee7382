// Decodes DDP segments (RFC 5041) and RDMAP messages (RFC 5040, RFC 7306) to the traffic of a
// connection. It matches Read Responses with their requests, and translates sinks to sources.
#pragma once

#include <array>
#include <cstdint>

#include "capture/iwarp/fpdu_search.h"
#include "capture/iwarp/mpa_reader.h"
#include "capture/iwarp/request_matcher.h"
#include "weft/capture/traffic.hpp"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::capture {

class RdmapDecoder {
 public:
  RdmapDecoder(ConnectionId connection, TrafficSink& sink) : connection_(connection), sink_(sink) {}

  void on_fpdu(Side side, const Fpdu& fpdu);
  // Bytes of the side's stream are missing; they may contain any message.
  void on_lost(Side side, const Stamp& stamp, const Hole& hole);
  // The capture began in the middle of the side's stream, so its earlier messages are unknown.
  void begin_in_mid_stream(Side side) {
    half(side).inside_unknown = true;
    half(side).requests.begin_in_mid_stream();
    half(other(side)).requests.begin_with_answers_unknown();
  }
  // The stream was captured from its start, but FPDUs were recognised late.
  void begin_late(Side side) {
    half(side).requests.begin_late();
    half(other(side)).requests.begin_with_answers_late();
  }
  // The side has acknowledged the other side's stream up to this position.
  void on_received(Side side, std::uint64_t position) {
    half(other(side)).requests.on_received(position);
  }
  // Sets how many requests of this side may be under way at a time; 0: unknown.
  void set_depth(Side side, std::size_t depth) { half(side).requests.set_depth(depth); }
  // Writes of this side to that STag are control words of a Weft device: see wire/control_word.h.
  // 0: there are none.
  void set_control_stag(Side side, std::uint32_t stag) { half(side).control_stag = stag; }
  [[nodiscard]] std::uint64_t control_words() const { return control_words_; }
  void on_violation(Side side, const Stamp& stamp, const Violation& violation) {
    sink_.on_violation({.connection = connection_, .side = side, .stamp = stamp}, violation);
  }
  [[nodiscard]] FpduExpectation expectation(Side side) const;
  [[nodiscard]] bool terminated() const { return terminated_; }
  [[nodiscard]] bool saw_fpdus() const { return saw_fpdus_; }

 private:
  // The state of what one side sends.
  struct Half {
    std::uint32_t send_msn = 0;  // MSN of the current or last Send; 0: none yet
    bool send_open = false;
    std::uint32_t send_offset = 0;  // expected message offset
    // What comes next may be in the middle of a Write: the capture began there, or bytes were lost,
    // and no other message has come since.
    bool inside_unknown = false;
    bool write_open = false;
    std::uint64_t write_message = 0;
    std::uint32_t write_stag = 0;
    std::uint64_t write_offset = 0;  // expected tagged offset
    std::uint32_t control_stag = 0;  // see set_control_stag()
    RequestMatcher requests;
    std::uint64_t lost_since_send = 0;  // bytes lost since the last segment of this kind
    std::uint64_t lost_since_write = 0;
    std::array<std::uint32_t, 4> stags{};
    std::size_t next_stag = 0;
  };

  // A segment with its origin and the state of both sides.
  struct Segment {
    Origin origin;
    Half& own;
    Half& peer;
    wire::RdmapOpcode opcode;
    bool last;
    Bytes payload;
    // Ranges in the ULPDU, which begins `header_bytes` before the payload.
    std::span<const MissingRange> missing;
    std::size_t header_bytes;

    [[nodiscard]] bool whole() const { return missing.empty(); }
  };

  // Handles an FPDU of which the header is missing.
  void without_header(Side side, const Fpdu& fpdu);
  // Counts bytes of unknown messages.
  void note_lost(Side side, std::uint64_t bytes);
  void tagged(Segment segment, const wire::TaggedView& view);
  void untagged(Segment segment, const wire::UntaggedView& view);
  void write(const Segment& segment, const wire::TaggedView& view);
  void control_word(const Segment& segment);
  void answer(const Segment& segment, const wire::TaggedView& view);
  void send(const Segment& segment, const wire::UntaggedView& view);
  void immediate(const Segment& segment, const wire::UntaggedView& view);
  void read_request(const Segment& segment, const wire::UntaggedView& view);
  void atomic_request(const Segment& segment, const wire::UntaggedView& view);
  void atomic_answer(const Segment& segment);
  void terminate(const Segment& segment);

  void check_send_order(const Segment& segment, const wire::UntaggedView& view);
  // Registers a request with content that cannot be decoded.
  void unreadable_request(const Segment& segment, const wire::UntaggedView& view);
  void add_request(const Segment& segment, const RequestMatcher::Request& request);
  // Reports a message of which the snap length cut what identifies it.
  void report_cut(const Segment& segment) {
    const MissingRange& first = segment.missing.front();
    if (first.cut) sink_.on_gap(segment.origin, {.wire_bytes = first.begin, .cut = true});
  }
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
  std::uint64_t control_words_ = 0;
};

}  // namespace weft::capture
