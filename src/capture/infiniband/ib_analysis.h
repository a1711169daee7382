// The InfiniBand transport of a trace, native or RoCE: checks packets and finds their connection. A
// packet names only the receiving queue pair. The two directions are joined by the connection
// manager's messages if they were captured, otherwise by responses that match requests.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/infiniband/ib_connection.h"
#include "capture/infiniband/ib_evidence.h"
#include "capture/infiniband/ib_first_packets.h"
#include "capture/infiniband/ib_manager.h"
#include "capture/infiniband/ib_suspects.h"
#include "capture/sources/copy_filter.h"
#include "capture/tcp/path_watch.h"
#include "weft/capture/connection_map.hpp"
#include "weft/capture/ib_packet.hpp"
#include "weft/capture/limits.hpp"
#include "weft/capture/management.hpp"

namespace weft::capture {

class IbAnalysis final : public InfinibandPackets, private IbManager::Events {
 public:
  using Limits = InfinibandLimits;
  using Counts = InfinibandCounts;

  IbAnalysis(const Limits& limits, ConnectionTable& connections, TrafficSink& sink,
             ManagementSink* management);

  void on_packet(const IbPacket& packet) override;
  void finish() override;
  // Reports what is open of the connection, and releases its entry in the table.
  void forget(ConnectionId id);
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  // Identifies one direction by what each packet carries.
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
    Side side = Side::a;  // sender
    // Packets that wait while the other direction of the flow, or its connection, is unknown.
    std::vector<HeldIbSegment> undecided{};
    bool waits = false;  // it has a connection, and its packets wait for the other direction
    // Where its other direction is looked for; nullptr once that is known or given up.
    std::unique_ptr<IbEvidence> evidence = std::make_unique<IbEvidence>();
    PathWatch path{};
  };
  struct HeldPacket {
    FlowKey key;
    PacketPath path;
    HeldIbSegment segment;
  };
  struct Connected {
    Connected(IbConnection::Shared& shared, Connection& entry) : connection(shared, entry) {}

    IbConnection connection;
    std::vector<FlowKey> flows{};  // current and former directions of this connection
    // Packets that may belong to another connection with the same queue pair numbers.
    std::vector<HeldPacket> of_restart{};
  };
  // A connection of which only one direction is known, and the sender of that direction.
  struct Unpaired {
    FlowKey key;
    IbConnection* connection = nullptr;
    Side side = Side::a;
  };
  // The flows that may be the other direction of one.
  struct Candidates {
    std::optional<FlowKey> best{};
    IbEvidence::Fit best_fit{};
    std::optional<std::size_t> second_doubts{};
    bool without_match = false;  // one does not conflict, and has no match

    void add(const FlowKey& key, const IbEvidence::Fit& fit);
    // Returns whether no other candidate can lead to a decision.
    [[nodiscard]] bool undecidable(bool at_end) const {
      return second_doubts && (!at_end || *second_doubts == 0);
    }
  };
  // The two queue pairs of a datagram connection; `a` is the one that sent first.
  struct DatagramKey {
    FlowKey to_b;
    std::uint32_t queue_pair_a = 0;

    bool operator==(const DatagramKey&) const = default;
  };
  struct HashDatagramKey {
    std::size_t operator()(const DatagramKey& key) const;
  };

  // Takes a packet that need not wait any more.
  void take(const IbPacket& packet);
  void take_first_packets();
  [[nodiscard]] bool checksum_fits(const IbPacket& packet, const wire::IbPacketView& view);
  [[nodiscard]] bool is_copy(const IbPacket& packet, const wire::IbPacketView& view);
  void note_congestion(const IbPacket& packet, const wire::Bth& bth);

  void on_datagram(const IbPacket& packet, const IbSegment& segment);
  void report_management(const IbPacket& packet, const IbSegment& segment);
  Connection& datagrams(const DatagramKey& key, Side& side);

  void on_connected(const FlowKey& key, const PacketPath& path, const IbSegment& segment);
  // Returns whether the packet waits, or was processed, because another connection with the same
  // queue pair numbers may have begun.
  bool restarts(const FlowKey& key, const PacketPath& path, const IbSegment& segment, Flow& flow);
  // Processes the packets that have waited, as those of another connection or of this one.
  void release_restart(Connected& connected, bool another);
  void begin_again(const Connected& connected);
  // Begins a connection for a flow that has none. Returns false if a later packet may show that it
  // belongs to another flow.
  bool begin_alone(const FlowKey& key, Flow& flow, const IbSegment& segment);
  // Looks for the other direction of a flow, and joins both. Returns whether it was found.
  bool join(const FlowKey& key, Flow& flow, bool at_end);
  void compare(const FlowKey& key, const Flow& flow, bool at_end, Candidates& found) const;
  [[nodiscard]] bool has_rival(const FlowKey& key, const Flow& flow) const;
  [[nodiscard]] std::optional<FlowKey> partner(const FlowKey& key, const Flow& flow,
                                               bool at_end) const;
  void unite(const FlowKey& key, Flow& flow, const FlowKey& other_key);
  void join_all_at_end();
  static void end_search(Flow& flow);
  // Makes the flow one direction of the connection.
  void bind(const FlowKey& key, Flow& flow, IbConnection& connection, Side side);
  void attach(const FlowKey& key, Flow& flow, IbConnection& connection, Side side);
  void withdraw_if_empty(IbConnection& connection);
  void begin_unpaired(const FlowKey& key, Flow& flow, const IbSegment& segment);
  // Stores a packet of an undecided flow. Returns false if there is no room.
  bool hold(const FlowKey& key, Flow& flow, const IbSegment& segment);
  void give_up_joining(const FlowKey& key, Flow& flow, const IbSegment& segment);
  void add_unpaired(const Unpaired& one);
  void pass_on_undecided(Flow& flow);
  void pass_on_undecided(Flow& one, Flow& other);
  // Drops the undecided packets of a flow that are older than `time_ns`, because its queue pair
  // number was assigned anew.
  void drop_undecided(const FlowKey& key, Flow& flow, std::int64_t time_ns);
  // Returns the connection of a flow, if the request for it is only captured late.
  [[nodiscard]] static IbConnection* requested_late(const Flow& flow,
                                                    const IbManager::Request& request);
  IbConnection& add_connection(Connection connection);
  // Reports everything that is open of the connection.
  void finish(Connected& connected);
  [[nodiscard]] bool awaits_reply(const FlowKey& key) const;

  // Events of the connection manager:
  IbConnection& on_request(const IbManager::Request& request) override;
  void on_established(IbConnection& connection, const IbManager::Reply& reply) override;
  void on_service(const HostAddress& host, std::uint32_t queue_pair) override;

  Limits limits_;
  ConnectionTable& table_;
  TrafficSink& sink_;
  ManagementSink* management_;  // nullptr: not wanted
  IbConnection::Shared shared_;
  IbManager manager_;
  ConnectionMap<Connected> connections_;
  std::unordered_map<FlowKey, Flow, HashFlowKey> flows_;
  std::deque<Unpaired> unpaired_;  // oldest first
  std::vector<FlowKey> undecided_;
  std::unordered_map<DatagramKey, ConnectionId, HashDatagramKey> datagrams_;
  ConnectionMap<DatagramKey> datagram_keys_;
  // Queue pairs named by SIDR, oldest first.
  std::deque<std::pair<HostAddress, std::uint32_t>> services_;
  // Hosts that sent packets of which the snap length cut the headers. Their connections are
  // unknown.
  std::unordered_set<HostAddress> cut_hosts_;
  bool good_checksum_seen_ = false;
  IbFirstPackets first_packets_;
  IbSuspects suspects_;
  CopyFilter copies_;
  Counts counts_;
};

}  // namespace weft::capture
