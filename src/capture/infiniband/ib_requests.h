// Decodes the requests of one side, after they were put in order: Sends, Writes, Reads and atomics
// (InfiniBand Architecture Specification, volume 1, §9.4). Only the first packet of a Write has the
// address; the others are placed by their distance from it.
#pragma once

#include <cstdint>
#include <optional>

#include "capture/infiniband/ib_answers.h"
#include "capture/infiniband/ib_order.h"
#include "capture/infiniband/ib_segment.h"

namespace weft::capture {

class IbRequests final : public IbOrder::Reader {
 public:
  // `answers` receives these requests. `origin` is that of the requester, without a stamp.
  IbRequests(const Origin& origin, TrafficSink& sink, IbPath& path, IbAnswers& answers)
      : origin_(origin), sink_(sink), path_(path), answers_(answers) {}

  std::optional<std::uint64_t> on_next(const IbSegment& segment) override;
  void on_repeat(const IbSegment& segment) override;
  void on_lost(const IbSegment& next, std::uint64_t packets) override;
  void on_late(const IbSegment& segment, std::int64_t delay_ns) override {
    sink_.on_late(origin(segment), delay_ns);
  }
  void on_end_lost(std::uint64_t packets) override;
  std::optional<std::uint64_t> width_before(const IbSegment& next, std::uint64_t distance) override;
  std::uint64_t guess_width(const IbSegment& next, std::uint64_t distance) override;

  [[nodiscard]] bool lost_any() const { return lost_any_; }

  // Returns whether a message has begun whose last packet has not come.
  [[nodiscard]] bool within_message() const { return open_ != Open::none; }

 private:
  enum class Open : std::uint8_t { none, send, write };

  [[nodiscard]] Origin origin(const IbSegment& segment) const;
  [[nodiscard]] Origin responder(const IbSegment& segment) const;
  void send(const IbSegment& segment);
  void write(const IbSegment& segment);
  std::optional<std::uint64_t> read(const IbSegment& segment);
  void atomic(const IbSegment& segment);
  // Return whether the offset of a packet that continues a message is known; they compute it after
  // a loss.
  bool continues_send(const IbSegment& segment, bool last);
  bool continues_write(const IbSegment& segment);
  void end_open(const IbSegment& segment);
  void begin(Open what, const IbSegment& segment);
  void check_full(const IbSegment& segment);
  // Reports a packet of a message with a lost beginning.
  void not_understood(const IbSegment& segment);
  void violation(const IbSegment& segment, Violation::Kind kind, std::uint64_t found,
                 std::uint64_t expected) {
    sink_.on_violation(origin(segment), {.kind = kind, .found = found, .expected = expected});
  }

  Origin origin_;
  TrafficSink& sink_;
  IbPath& path_;
  IbAnswers& answers_;
  Open open_ = Open::none;
  std::uint32_t first_psn_ = 0;  // first PSN of the message under way
  std::uint64_t offset_ = 0;     // offset of its next packet
  std::uint32_t key_ = 0;
  std::uint64_t address_ = 0;
  std::uint64_t length_ = 0;
  std::uint64_t lost_before_ = 0;  // packets that are missing directly before this one
  bool lost_any_ = false;
  // The last packet was in the middle of a message whose beginning is unknown.
  bool inside_unknown_ = false;
  wire::Reth last_read_;
  Stamp last_;
};

}  // namespace weft::capture
