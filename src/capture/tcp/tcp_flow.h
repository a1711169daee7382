// One TCP connection: its two streams, and the events of TCP itself.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "capture/tcp/path_watch.h"
#include "weft/capture/tcp_flows.hpp"

namespace weft::capture {

class TcpFlows::Flow {
 public:
  // `first` shows which side requested the connection; it must still be passed to on_segment().
  Flow(const TcpFlows& flows, Budget& budget, const TcpSegment& first);

  // Returns whether a segment belongs to a later connection with the same ports; then this one has
  // ended.
  [[nodiscard]] bool succeeded_by(const TcpSegment& segment) const;
  void on_segment(const TcpSegment& segment);
  void finish(const Stamp& stamp);

 private:
  // Passes one direction to the reader.
  class Direction final : public StreamReader {
   public:
    Direction(Flow& flow, Side side) : flow_(flow), side_(side) {}
    void on_bytes(const Stamp& stamp, std::uint64_t position, Bytes bytes) override {
      flow_.announce(side_);
      flow_.reader_->on_bytes(side_, stamp, position, bytes);
    }
    void on_hole(const Stamp& stamp, std::uint64_t position, const Hole& hole) override {
      flow_.announce(side_);
      flow_.reader_->on_hole(side_, stamp, position, hole);
    }

   private:
    Flow& flow_;
    Side side_;
  };
  struct Half {
    Half(Flow& flow, Side side, const TcpStream::Limits& limits, Budget& budget)
        : stream(limits, budget), direction(flow, side) {}

    TcpStream stream;
    Direction direction;
    bool announced = false;
    bool finished = false;
    bool window_closed = false;
    std::uint64_t foreign_segments = 0;  // consecutive segments that cannot belong to the stream
    PathWatch path;
  };
  // A reset that the capture holds before what its sender had sent.
  struct EarlyReset {
    Side side = Side::a;
    Stamp stamp;
    std::uint32_t sequence = 0;  // its sender had sent everything before it
  };

  [[nodiscard]] Half& half(Side side) { return side == Side::a ? a_ : b_; }
  [[nodiscard]] const Half& half(Side side) const { return side == Side::a ? a_ : b_; }
  [[nodiscard]] Side side_of(const TcpSegment& segment) const;
  void announce(Side side);
  void watch_window(Side side, const TcpSegment& segment);
  void watch_probe(Side side, const TcpSegment& segment);
  void take_payload(Side side, const TcpSegment& segment);
  void take_end(Side side, const TcpSegment& segment);
  void report_late(Side side, const TcpSegment& segment);
  void on_reset(Side side, const TcpSegment& segment);
  [[nodiscard]] bool follows_end(const Half& own, const TcpSegment& segment) const;
  void withdraw_reset(Side side, const TcpSegment& segment);
  void report_reset(const EarlyReset& reset, const Stamp& now);
  [[nodiscard]] bool is_early(const EarlyReset& reset);
  void share_disorder();
  void settle(const Stamp& stamp);
  void give_up_all(const Stamp& stamp);
  void check_finished(const Stamp& stamp);

  const TcpFlows& flows_;
  TcpEndpoints endpoints_;
  std::unique_ptr<TcpReader> reader_;
  Half a_;
  Half b_;
  std::uint64_t packets_ = 0;
  std::optional<EarlyReset> reset_;
  bool over_ = false;
};

}  // namespace weft::capture
