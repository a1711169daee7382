// One TCP connection that may carry MPA: joins its two directions.
#pragma once

#include <array>
#include <optional>
#include <unordered_map>

#include "capture/iwarp/mpa_reader.h"
#include "capture/iwarp/rdmap_decoder.h"
#include "weft/capture/budget.hpp"
#include "weft/capture/connection.hpp"
#include "weft/capture/tcp_flows.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

class IwarpConnection final : public TcpReader {
 public:
  // Data that all connections of a trace share; it must outlive them.
  struct Shared {
    ConnectionTable& connections;
    TrafficSink& sink;
    Budget search_budget;  // memory for streams that may turn out to be MPA
    // The connections that have an entry in `connections`.
    std::unordered_map<ConnectionId, const IwarpConnection*> established;
  };

  IwarpConnection(Shared& shared, const TcpEndpoints& endpoints);
  IwarpConnection(const IwarpConnection&) = delete;
  IwarpConnection& operator=(const IwarpConnection&) = delete;
  ~IwarpConnection() override;

  [[nodiscard]] const TcpEndpoints& endpoints() const { return endpoints_; }
  void on_start(Side side, bool from_the_start) override;
  void on_bytes(Side side, const Stamp& stamp, std::uint64_t position, Bytes bytes) override;
  void on_hole(Side side, const Stamp& stamp, std::uint64_t position, const Hole& hole) override;
  void on_repeat(Side side, const Stamp& stamp, std::uint64_t bytes) override;
  void on_received(Side side, const Stamp& stamp, std::uint64_t position) override;
  void on_window(Side side, const Stamp& stamp, bool open) override;
  void on_packet(Side side, const Stamp& stamp) override;
  void on_window_probe(Side side, const Stamp& stamp) override;
  void on_path_change(Side side, const Stamp& stamp, const PathChange& change) override;
  void on_late(Side side, const Stamp& stamp, std::int64_t delay_ns) override;
  void on_finished(Side side, const Stamp& stamp) override;
  void on_reset(Side side, const Stamp& stamp) override;
  void on_end(const Stamp& stamp) override;
  [[nodiscard]] bool indifferent() const override { return indifferent_; }

  // Returns whether a segment begins like an MPA request.
  [[nodiscard]] static bool begins_with_request(Bytes payload);

 private:
  class Direction final : public MpaEvents {
   public:
    Direction(IwarpConnection& connection, Side side, Budget& budget)
        : reader(*this, budget), connection_(connection), side_(side) {}

    void on_frame(const Stamp& /*stamp*/, const wire::MpaFrameView& frame,
                  std::size_t cut_bytes) override {
      connection_.on_frame(side_, frame, cut_bytes);
    }
    bool on_unknown_start() override { return connection_.decoder_.has_value(); }
    void on_found(bool crc_good) override { connection_.on_found(side_, crc_good); }
    void on_fpdu(const Fpdu& fpdu) override { connection_.on_fpdu(side_, fpdu); }
    void on_lost(const Stamp& stamp, const Hole& hole) override {
      if (connection_.decoder_)
        connection_.decoder_->on_lost(side_, stamp, hole);
      else
        lost_before += hole.bytes;
    }
    void on_violation(const Stamp& stamp, const Violation& violation) override {
      connection_.decoder_->on_violation(side_, stamp, violation);
    }
    [[nodiscard]] FpduExpectation expectation() const override {
      return connection_.decoder_ ? connection_.decoder_->expectation(side_) : FpduExpectation{};
    }

    MpaReader reader;
    bool from_the_start = false;
    std::uint64_t lost_before = 0;  // bytes lost before the connection was known to be MPA
    std::uint64_t received = 0;     // of the other side's stream, as this side has acknowledged it
    bool lacks_bytes = false;       // which this side sent, and the capture does not have
    bool requested = false;         // it has sent the MPA request
    bool offers_words = false;      // its frame offers control words: wire::MpaFrame::words

   private:
    IwarpConnection& connection_;
    Side side_;
  };

  [[nodiscard]] Direction& direction(Side side) { return side == Side::a ? a_ : b_; }
  void on_frame(Side side, const wire::MpaFrameView& frame, std::size_t cut_bytes);
  void on_found(Side side, bool crc_good);
  void on_fpdu(Side side, const Fpdu& fpdu);
  [[nodiscard]] bool is_unanswered() const;
  void settle_framing();
  void settle_depths();
  void settle_control_words(Side side, const wire::MpaFrame& frame, Bytes private_data);
  Connection& establish(Connection::Beginning beginning);
  void check_interest();
  // After a Terminate the sender stops, perhaps in the middle of an FPDU.
  [[nodiscard]] bool was_terminated() const { return decoder_ && decoder_->terminated(); }
  [[nodiscard]] Origin origin(Side side, const Stamp& stamp) const {
    return {.connection = connection_->id, .side = side, .stamp = stamp};
  }

  Shared& shared_;
  TcpEndpoints endpoints_;
  Direction a_;
  Direction b_;
  Connection* connection_ = nullptr;  // set when the connection is known to be MPA
  std::optional<RdmapDecoder> decoder_;
  std::uint64_t frames_ = 0;
  std::array<std::uint64_t, 2> side_frames_{};
  Stamp first_;
  Stamp last_;
  bool finished_a_ = false;
  bool finished_b_ = false;
  std::int64_t finished_ns_ = 0;  // time of the first FIN
  bool over_ = false;
  bool indifferent_ = false;
};

}  // namespace weft::capture
