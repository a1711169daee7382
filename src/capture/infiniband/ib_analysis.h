// The InfiniBand transport of a trace, native or RoCE: packets are checked, and find their
// connection. The wire names the receiving queue pair only; the two directions are joined by the
// connection manager's messages where they were captured, and by what answers what where not.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/infiniband/ib_connection.h"
#include "capture/infiniband/ib_manager.h"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/ib_packet.hpp"
#include "weft/capture/limits.hpp"

namespace weft::capture {

class IbAnalysis final : public InfinibandPackets, private IbManager::Events {
 public:
  using Limits = InfinibandLimits;
  using Counts = InfinibandCounts;

  IbAnalysis(const Limits& limits, ConnectionTable& connections, TrafficSink& sink);

  void on_packet(const IbPacket& packet) override;
  void finish() override;
  // Gives out what is open of the connection, and lets go of its entry in the table.
  void forget(ConnectionId id);
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  // Where packets go: what the wire says of a direction.
  struct FlowKey {
    HostAddress source;
    HostAddress destination;
    std::uint32_t queue_pair = 0;

    bool operator==(const FlowKey&) const = default;
  };
  struct HashFlowKey {
    std::size_t operator()(const FlowKey& key) const;
  };
  struct Flow {
    IbConnection* connection = nullptr;
    Side side = Side::a;  // who sends
    // While it is not known which connection it is part of.
    std::vector<HeldIbSegment> undecided{};
  };
  struct Connected {
    Connected(IbConnection::Shared& shared, Connection& entry) : connection(shared, entry) {}

    IbConnection connection;
    std::vector<FlowKey> flows{};  // that are, or were, its directions
  };
  // A connection of which one direction only is known, and who sends in it.
  struct Alone {
    FlowKey key;
    IbConnection* connection = nullptr;
    Side side = Side::a;
  };
  // The two queue pairs of datagrams, by who was seen first.
  struct DatagramKey {
    FlowKey to_b;
    std::uint32_t queue_pair_a = 0;

    bool operator==(const DatagramKey&) const = default;
  };
  struct HashDatagramKey {
    std::size_t operator()(const DatagramKey& key) const;
  };

  [[nodiscard]] bool checksum_fits(const IbPacket& packet, const wire::IbPacketView& view);
  void note_congestion(const IbPacket& packet, const wire::Bth& bth);

  void on_datagram(const IbPacket& packet, const IbSegment& segment);
  Connection& datagrams(const DatagramKey& key, Side& side);

  void on_connected(const FlowKey& key, const IbSegment& segment);
  // Finds the connection of a flow that has none. False: it is not known yet.
  bool join(const FlowKey& key, Flow& flow, const IbSegment& segment);
  [[nodiscard]] const Alone* match(const FlowKey& key, const Flow& flow,
                                   const IbSegment& segment) const;
  // The other way round: an answer in a connection decides about undecided requests.
  void decide_others(const FlowKey& key, IbConnection& connection, Side side,
                     const IbSegment& answer);
  // Makes the flow a direction of the connection.
  void bind(const FlowKey& key, Flow& flow, IbConnection& connection, Side side);
  void attach(const FlowKey& key, Flow& flow, IbConnection& connection, Side side);
  void begin_alone(const FlowKey& key, Flow& flow, const IbSegment& segment);
  // False: there is no room for more that wait.
  bool hold(const FlowKey& key, Flow& flow, const IbSegment& segment);
  void give_up_joining(const FlowKey& key, Flow& flow, const IbSegment& segment);
  void lack_peer(const Alone& alone);
  void pass_on_undecided(Flow& flow);
  // They belong to nothing that will be known.
  void drop_undecided(const FlowKey& key, Flow& flow);
  IbConnection& add_connection(Connection connection);
  [[nodiscard]] bool awaits_reply(const FlowKey& key) const;

  // The connection manager
  IbConnection& on_request(const IbManager::Request& request) override;
  void on_established(IbConnection& connection, const IbManager::Reply& reply) override;
  void on_service(const HostAddress& host, std::uint32_t queue_pair) override;

  Limits limits_;
  ConnectionTable& table_;
  TrafficSink& sink_;
  IbConnection::Shared shared_;
  IbManager manager_;
  ConnectionMap<Connected> connections_;
  std::unordered_map<FlowKey, Flow, HashFlowKey> flows_;
  std::deque<Alone> alone_;  // oldest first
  std::vector<FlowKey> undecided_;
  std::unordered_map<DatagramKey, ConnectionId, HashDatagramKey> datagrams_;
  ConnectionMap<DatagramKey> datagram_keys_;
  std::deque<std::pair<HostAddress, std::uint32_t>> services_;  // told by SIDR, oldest first
  bool good_checksum_seen_ = false;
  Counts counts_;
};

}  // namespace weft::capture
