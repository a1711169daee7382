// One connection of two queue pairs: RC, UC or XRC. It has the requests of each side, and the other
// side's responses to them.
//
// While requests of one side wait for a missing one, all packets of the other side wait as well:
// they may refer to the missing packet, and must not be reported before it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

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
  // Data that all connections of a trace share; it must outlive them.
  struct Shared {
    ConnectionTable& connections;
    TrafficSink& sink;
    Limits limits;
    InfinibandCounts& counts;
    Budget budget;  // for waiting packets
  };

  IbConnection(Shared& shared, Connection& connection);
  IbConnection(const IbConnection&) = delete;
  IbConnection& operator=(const IbConnection&) = delete;
  ~IbConnection();

  // Set what the connection manager's messages contain: the first PSN of a side, and the path MTU.
  void begin(Side side, std::uint32_t psn) {
    half(side).order.begin(psn);
    half(side).answers.begin_with_handshake();
  }
  // Sets which side has requested the connection: a, if nothing else is known.
  void set_active(Side side) { active_ = side; }
  [[nodiscard]] Side active() const { return active_; }
  void set_mtu(std::uint32_t mtu_bytes) { path_.set(mtu_bytes); }

  void on_packet(Side side, const IbSegment& segment);
  // Counts a frame that carries no traffic of the connection.
  void count(const Stamp& stamp);
  // Returns whether a packet of the side can belong to this connection. If not, a new connection
  // uses the same queue pair numbers.
  [[nodiscard]] bool plausible(Side side, const IbSegment& segment);
  // Whether a packet belongs to another connection, which uses the same queue pair numbers from the
  // same PSN on. `perhaps`: an acknowledgement decides, and until then the packets must wait.
  enum class Restart : std::uint8_t { no, perhaps, yes };
  // Call it for each packet, in the order of the capture, unless plausible() returned false.
  [[nodiscard]] Restart restart(Side side, const IbSegment& segment);
  // The packets do not wait any more.
  void end_restart() { restarting_.reset(); }
  // Returns whether `psn` can be the first PSN of the side, as far as its packets show.
  [[nodiscard]] bool may_begin(Side side, std::uint32_t psn) const {
    return half(side).order.may_begin(psn);
  }
  [[nodiscard]] bool begins_with(Side side, std::uint32_t psn) const {
    return half(side).order.begins_with(psn);
  }
  // Returns whether the side has sent a request with this PSN, which a response would answer.
  [[nodiscard]] bool has_requested(Side side, std::uint32_t psn) const {
    return half(side).order.covers(psn);
  }
  // The sides have closed the connection. If the capture lacks packets that were sent before, it
  // may hold them later, so what is open is reported when they have come or at the end.
  void end(const Stamp& stamp, Connection::End end);
  void finish();

  [[nodiscard]] Connection& connection() { return connection_; }
  [[nodiscard]] const Connection& connection() const { return connection_; }
  [[nodiscard]] Origin origin(Side side, const Stamp& stamp) const {
    return {.connection = connection_.id, .side = side, .stamp = stamp};
  }

 private:
  // The requests of one side and the responses to them.
  struct Half {
    Half(Shared& shared, const Origin& origin, IbPath& path)
        : answers(shared.limits.answers, shared.budget, shared.sink, path, shared.counts),
          requests(origin, shared.sink, path, answers),
          order(shared.limits.requests, shared.budget, requests) {}
    IbAnswers answers;
    IbRequests requests;
    IbOrder order;
    std::deque<HeldIbSegment> delayed;  // requests and responses of this side that wait
    std::optional<std::uint32_t> msn;   // the last one that acknowledged requests of this side
  };

  [[nodiscard]] Half& half(Side side) { return side == Side::a ? a_ : b_; }
  [[nodiscard]] const Half& half(Side side) const { return side == Side::a ? a_ : b_; }
  [[nodiscard]] bool delay(Side side, const IbSegment& segment);
  // Passes on the packets that need not wait any more, in the order of the capture.
  void catch_up();
  [[nodiscard]] static bool may_pass(Half& own, Half& peer);
  bool pass_on_earliest(std::uint64_t before_frame);
  bool resolve_mutual_wait();
  void process(Side side, const IbSegment& segment);
  void on_answer(const Origin& origin, const IbSegment& segment);
  void on_acknowledge(const Origin& origin, const IbSegment& segment);
  void watch(const Stamp& stamp);
  [[nodiscard]] bool waits() const;
  void finish_end();
  void finish_halves();

  Shared& shared_;
  Connection& connection_;
  IbPath path_;
  Half a_;
  Half b_;
  Side active_ = Side::a;
  bool ended_ = false;
  std::optional<Side> restarting_;  // the side that may have begun another connection
  std::optional<Stamp> ending_;     // it was closed then, and something waits
};

}  // namespace weft::capture
