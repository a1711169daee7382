// One connection of two queue pairs: RC, UC or XRC. Each side's requests, and the other side's
// answers to them.
//
// While requests of one side wait for one that is missing, everything that the other side sends
// waits too: it may be about them, and must not come before them.
#pragma once

#include <cstdint>
#include <deque>

#include "capture/infiniband/ib_answers.h"
#include "capture/infiniband/ib_order.h"
#include "capture/infiniband/ib_requests.h"
#include "weft/capture/budget.hpp"
#include "weft/capture/connection.hpp"
#include "weft/capture/limits.hpp"
#include "weft/capture/traffic.hpp"

namespace weft::capture {

class IbConnection {
 public:
  using Limits = InfinibandLimits::Connection;
  // What all connections of a trace share; outlives them.
  struct Shared {
    ConnectionTable& connections;
    TrafficSink& sink;
    Limits limits;
    Budget budget;  // for packets that wait
  };

  IbConnection(Shared& shared, Connection& connection);
  IbConnection(const IbConnection&) = delete;
  IbConnection& operator=(const IbConnection&) = delete;
  ~IbConnection();

  // The connection manager has told the first PSN of a side, and the MTU of the path.
  void begin(Side side, std::uint32_t psn) { half(side).order.begin(psn); }
  void set_mtu(std::uint32_t mtu_bytes) { path_.mtu_bytes = mtu_bytes; }

  void on_packet(Side side, const IbSegment& segment);
  // Counts a frame that carries none of the traffic.
  void count(const Stamp& stamp);
  // Whether a packet of the side can belong here; if not, another connection has begun with the
  // same numbers.
  [[nodiscard]] bool plausible(Side side, const IbSegment& segment) const;
  // Whether the side has sent a request that this would be an answer to.
  [[nodiscard]] bool has_requested(Side side, std::uint32_t psn) const {
    return half(side).order.covers(psn);
  }
  void end(const Stamp& stamp, Connection::End end);
  void finish();

  [[nodiscard]] Connection& connection() { return connection_; }
  [[nodiscard]] const Connection& connection() const { return connection_; }
  [[nodiscard]] Origin origin(Side side, const Stamp& stamp) const {
    return {.connection = connection_.id, .side = side, .stamp = stamp};
  }

 private:
  // One side's requests and what is answered to them.
  struct Half {
    Half(Shared& shared, const Origin& origin, IbPath& path)
        : answers(shared.limits.answers, shared.budget, shared.sink, path),
          requests(origin, shared.sink, path, answers),
          order(shared.limits.requests, shared.budget, requests) {}
    IbAnswers answers;
    IbRequests requests;
    IbOrder order;
    std::deque<HeldIbSegment> delayed;  // what this side has sent, requests and answers
  };

  [[nodiscard]] Half& half(Side side) { return side == Side::a ? a_ : b_; }
  [[nodiscard]] const Half& half(Side side) const { return side == Side::a ? a_ : b_; }
  [[nodiscard]] bool delay(Side side, const IbSegment& segment);
  // Passes on what waits and need not any more, in the order of the capture.
  void catch_up();
  bool pass_on_earliest();
  void process(Side side, const IbSegment& segment);
  void on_answer(const Origin& origin, const IbSegment& segment);
  void on_acknowledge(const Origin& origin, const IbSegment& segment);
  void watch(const Stamp& stamp);

  Shared& shared_;
  Connection& connection_;
  IbPath path_;
  Half a_;
  Half b_;
  bool ended_ = false;
};

}  // namespace weft::capture
