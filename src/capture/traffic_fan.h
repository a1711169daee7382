// Sinks that pass each event on to several sinks.
#pragma once

#include <vector>

#include "weft/capture/management.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

// Calls all sinks for each event, in the order in which they were added.
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
  void on_credits(const Origin& origin, const CreditUpdate& update) override {
    for (auto* sink : sinks_) sink->on_credits(origin, update);
  }
  void on_received(const Origin& origin, std::uint64_t position) override {
    for (auto* sink : sinks_) sink->on_received(origin, position);
  }
  void on_window(const Origin& origin, bool open) override {
    for (auto* sink : sinks_) sink->on_window(origin, open);
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
  void on_window_probe(const Origin& origin) override {
    for (auto* sink : sinks_) sink->on_window_probe(origin);
  }
  void on_late(const Origin& origin, std::int64_t delay_ns) override {
    for (auto* sink : sinks_) sink->on_late(origin, delay_ns);
  }
  void on_violation(const Origin& origin, const Violation& violation) override {
    for (auto* sink : sinks_) sink->on_violation(origin, violation);
  }
  void on_congestion(const Origin& origin, Congestion congestion) override {
    for (auto* sink : sinks_) sink->on_congestion(origin, congestion);
  }
  void on_path_change(const Origin& origin, const PathChange& change) override {
    for (auto* sink : sinks_) sink->on_path_change(origin, change);
  }
  void on_end(const Origin& origin, bool reset) override {
    for (auto* sink : sinks_) sink->on_end(origin, reset);
  }
  void on_close(ConnectionId connection) override {
    for (auto* sink : sinks_) sink->on_close(connection);
  }
  void on_forget(ConnectionId connection) override {
    for (auto* sink : sinks_) sink->on_forget(connection);
  }

 private:
  std::vector<TrafficSink*> sinks_;
};

class OperationFan final : public OperationSink {
 public:
  void add(OperationSink& sink) { sinks_.push_back(&sink); }

  void on_operation(const Operation& operation) override {
    for (auto* sink : sinks_) sink->on_operation(operation);
  }

 private:
  std::vector<OperationSink*> sinks_;
};

class ManagementFan final : public ManagementSink {
 public:
  void add(ManagementSink& sink) { sinks_.push_back(&sink); }

  void on_management(const ManagementDatagram& datagram) override {
    for (auto* sink : sinks_) sink->on_management(datagram);
  }

 private:
  std::vector<ManagementSink*> sinks_;
};

}  // namespace weft::capture
