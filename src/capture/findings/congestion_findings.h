// Reports where congestion begins: at the port towards a host to which several others send, and to
// which other hosts it has spread from there.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "weft/capture/connection.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/host_address.hpp"

namespace weft::capture {

namespace finding {
inline constexpr std::string_view congested_port = "congested-port";
}  // namespace finding

class CongestionFindings final : public TrafficSink {
 public:
  // Further hosts, senders and connections are left out.
  static constexpr std::size_t most_hosts = 4'096;
  static constexpr std::size_t most_of_a_host = 64;
  static constexpr std::size_t max_frames = 16;

  // Both must outlive this object.
  CongestionFindings(const ConnectionTable& connections, FindingSink& sink)
      : connections_(connections), sink_(&sink) {}

  void on_congestion(const Origin& origin, Congestion congestion) override;
  void on_close(ConnectionId connection) override;
  // Ends the trace: reports one finding for each port.
  void finish();
  // Reports to `sink` what was collected so far, and keeps it.
  void report_so_far(FindingSink& sink);

 private:
  // What met congestion on its way to one host.
  struct Port {
    Stamp first;
    std::uint64_t marked = 0;
    std::uint64_t notified = 0;
    std::set<HostAddress> senders;
    std::map<ConnectionId, Stamp> connections;  // with the first frame of each
  };
  using Ports = std::map<HostAddress, Port>;

  void report(const Ports::value_type& port);
  // The hosts to which the senders of this port met congestion later.
  [[nodiscard]] std::vector<const Ports::value_type*> spread_from(
      const Ports::value_type& port) const;

  const ConnectionTable& connections_;
  FindingSink* sink_;
  Ports ports_;  // by the receiving host
};

}  // namespace weft::capture
