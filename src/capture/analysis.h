// A whole analysis: packets go in, traffic and operations come out. Needs no file and no libpcap;
// one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "capture/connection.h"
#include "capture/ib_analysis.h"
#include "capture/iwarp_connection.h"
#include "capture/operation_tracker.h"
#include "capture/packet_decoder.h"
#include "capture/packet_source.h"
#include "capture/tcp_flows.h"
#include "capture/traffic.h"

namespace weft::capture {

// Gives each event to several sinks, in the order in which they were added.
class TrafficFan final : public TrafficSink {
 public:
  void add(TrafficSink& sink) { sinks_.push_back(&sink); }

  void on_send(const Origin& origin, const SendPart& part) override {
    for (auto* sink : sinks_) sink->on_send(origin, part);
  }
  void on_write(const Origin& origin, const WritePart& part) override {
    for (auto* sink : sinks_) sink->on_write(origin, part);
  }
  void on_read_request(const Origin& origin, const ReadRequest& request) override {
    for (auto* sink : sinks_) sink->on_read_request(origin, request);
  }
  void on_read_part(const Origin& origin, const ReadPart& part) override {
    for (auto* sink : sinks_) sink->on_read_part(origin, part);
  }
  void on_immediate(const Origin& origin, const ImmediateMessage& message) override {
    for (auto* sink : sinks_) sink->on_immediate(origin, message);
  }
  void on_atomic_request(const Origin& origin, const AtomicRequest& request) override {
    for (auto* sink : sinks_) sink->on_atomic_request(origin, request);
  }
  void on_atomic_answer(const Origin& origin, const AtomicAnswer& answer) override {
    for (auto* sink : sinks_) sink->on_atomic_answer(origin, answer);
  }
  void on_acknowledge(const Origin& origin, std::uint32_t psn) override {
    for (auto* sink : sinks_) sink->on_acknowledge(origin, psn);
  }
  void on_received(const Origin& origin, std::uint64_t position) override {
    for (auto* sink : sinks_) sink->on_received(origin, position);
  }
  void on_refusal(const Origin& origin, const Refusal& refusal) override {
    for (auto* sink : sinks_) sink->on_refusal(origin, refusal);
  }
  void on_repeat(const Origin& origin, std::uint64_t wire_bytes) override {
    for (auto* sink : sinks_) sink->on_repeat(origin, wire_bytes);
  }
  void on_gap(const Origin& origin, const Gap& gap) override {
    for (auto* sink : sinks_) sink->on_gap(origin, gap);
  }
  void on_violation(const Origin& origin, const Violation& violation) override {
    for (auto* sink : sinks_) sink->on_violation(origin, violation);
  }
  void on_congestion(const Origin& origin, Congestion congestion) override {
    for (auto* sink : sinks_) sink->on_congestion(origin, congestion);
  }
  void on_end(const Origin& origin, bool reset) override {
    for (auto* sink : sinks_) sink->on_end(origin, reset);
  }

 private:
  std::vector<TrafficSink*> sinks_;
};

class Analysis {
 public:
  struct Limits {
    TcpFlows::Limits tcp;
    IbAnalysis::Limits infiniband;
    std::size_t search_bytes = 64 * 1024 * 1024;  // of streams that may turn out to be MPA
  };
  struct Totals {
    std::uint64_t frames = 0;
    std::uint64_t wire_bytes = 0;
    std::uint64_t captured_bytes = 0;
    std::int64_t first_ns = 0;
    std::int64_t last_ns = 0;
    std::uint64_t truncated_frames = 0;  // by the snap length
  };

  Analysis() : Analysis(Limits{}) {}
  explicit Analysis(const Limits& limits);
  Analysis(const Analysis&) = delete;
  Analysis& operator=(const Analysis&) = delete;

  // To be added before the first packet; they outlive the analysis.
  void add_sink(TrafficSink& sink) { traffic_.add(sink); }
  void add_operations(OperationSink& sink) { operation_sinks_.sinks.push_back(&sink); }

  // Frames are numbered in the order in which they come, from 1.
  void add(const RawPacket& packet);
  // No more packets come: gives out what is still open.
  void finish();

  [[nodiscard]] const ConnectionTable& connections() const { return connections_; }
  [[nodiscard]] const Totals& totals() const { return totals_; }
  [[nodiscard]] const PacketDecoder::Counts& packet_counts() const { return decoder_.counts(); }
  [[nodiscard]] std::uint64_t tcp_connections() const { return flows_.connections(); }
  [[nodiscard]] std::uint64_t tcp_forgotten() const { return flows_.forgotten(); }
  [[nodiscard]] const IbAnalysis::Counts& infiniband() const { return infiniband_.counts(); }

 private:
  struct OperationFan final : OperationSink {
    void on_operation(const Operation& operation) override {
      for (auto* sink : sinks) sink->on_operation(operation);
    }
    std::vector<OperationSink*> sinks;
  };

  ConnectionTable connections_;
  TrafficFan traffic_;
  OperationFan operation_sinks_;
  OperationTracker tracker_;
  IwarpConnection::Shared shared_;
  TcpFlows flows_;
  IbAnalysis infiniband_;
  PacketDecoder decoder_;
  Totals totals_;
};

}  // namespace weft::capture
