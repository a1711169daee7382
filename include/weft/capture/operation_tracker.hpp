// Joins parts of traffic into operations. Limits bound the memory for each side of a connection.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "weft/capture/connection.hpp"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

class WEFT_API OperationTracker final : public TrafficSink {
 public:
  struct Limits {
    // Operations of one side that wait for a confirmation or a response. Above the limit the oldest
    // is reported as it is: a capture of one direction contains no confirmations at all.
    std::size_t waiting = 16'384;
    // Waiting operations of all sides. Above the limit each side reports its older half.
    std::size_t waiting_in_all = 262'144;
  };

  // Both must outlive this.
  OperationTracker(const ConnectionTable& connections, OperationSink& sink)
      : OperationTracker(connections, sink, Limits{}) {}
  OperationTracker(const ConnectionTable& connections, OperationSink& sink, const Limits& limits)
      : connections_(connections), sink_(sink), limits_(limits) {}

  void on_send(const Origin& origin, const SendPart& part) override;
  void on_write(const Origin& origin, const WritePart& part) override;
  void on_read_request(const Origin& origin, const ReadRequest& request) override;
  void on_read_part(const Origin& origin, const ReadPart& part) override;
  void on_immediate(const Origin& origin, const ImmediateMessage& message) override;
  void on_atomic_request(const Origin& origin, const AtomicRequest& request) override;
  void on_atomic_answer(const Origin& origin, const AtomicAnswer& answer) override;
  void on_acknowledge(const Origin& origin, std::uint32_t psn) override;
  void on_received(const Origin& origin, std::uint64_t position) override;
  void on_gap(const Origin& origin, const Gap& gap) override;
  void on_refusal(const Origin& origin, const Refusal& refusal) override;
  void on_end(const Origin& origin, bool reset) override;
  void on_close(ConnectionId connection) override;
  void on_forget(ConnectionId connection) override { pairs_.erase(connection); }

  // Ends the trace: reports what is still open. No events may follow.
  void finish();

 private:
  // A message of which parts were seen, but not the last one.
  struct Open {
    bool active = false;
    Operation operation;
    std::uint64_t expected = 0;  // offset or address of the next part
  };
  struct Unconfirmed {
    Operation operation;
    std::uint64_t position = 0;
  };
  struct Half {
    Open send;
    Open write;
    std::deque<Unconfirmed> unconfirmed;  // oldest first
    std::deque<Operation> requests;       // Reads and atomics without a response, oldest first
    // IWARP: stream position; InfiniBand: PSN, if has_confirmed.
    std::uint64_t confirmed_position = 0;
    bool has_confirmed = false;
    Stamp confirmed_at;
    // IWARP: the last frame that may have a response to a request before it: one that cannot be
    // assigned to a request, or bytes that cannot be decoded. 0: none.
    std::uint64_t unknown_frame = 0;
    bool lacks_bytes = false;  // some that this side sent are missing, or cannot be decoded
  };
  struct Pair {
    Half a;
    Half b;
  };

  [[nodiscard]] Half& half(const Origin& origin);
  [[nodiscard]] Half& peer(const Origin& origin);
  static Operation begin(const Origin& origin, Operation::Kind kind, std::uint64_t message);
  void close(Half& half, Open& open, std::uint64_t position);
  void await_confirmation(Half& half, const Operation& operation, std::uint64_t position);
  template <typename Confirms>
  void confirm(Half& half, const Stamp& stamp, Confirms confirms);
  void add_request(Half& half, const Operation& operation);
  // Removes the request with number `message`; reports older ones as unanswered.
  bool take_request(Half& half, std::uint64_t message, Operation& operation);
  static void not_ready(Half& requester, std::uint32_t psn);
  void report(Operation operation);
  void report_all(Half& half);
  // Reports the oldest waiting operation as it is.
  void report_unconfirmed(Half& half);
  void report_unanswered(Half& half);
  // Sets the outcome of a request without a whole response.
  void end_unanswered(const Half& half, Operation& operation) const;
  // Counts one more waiting operation; reports older ones if that exceeds the limit.
  void count_waiting();

  const ConnectionTable& connections_;
  OperationSink& sink_;
  Limits limits_;
  ConnectionMap<Pair> pairs_;
  std::size_t waiting_ = 0;  // on all sides
  std::uint64_t numbered_ = 0;
};

}  // namespace weft::capture
