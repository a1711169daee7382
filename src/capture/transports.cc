#include "weft/capture/transports.hpp"

#include "capture/infiniband/ib_analysis.h"
#include "capture/iwarp/iwarp_connection.h"

namespace weft::capture {

struct IwarpTransport::Work {
  Work(const Limits& limits, ConnectionTable& connections, TrafficSink& sink)
      : shared{connections, sink, Budget(limits.search_bytes), {}},
        flows(
            limits.tcp,
            [this](const TcpEndpoints& endpoints) {
              return std::make_unique<IwarpConnection>(shared, endpoints);
            },
            &IwarpConnection::begins_with_request) {}

  // The flows hold the connections, which refer to `shared` even in their destructors, so it is
  // declared first and destroyed last.
  IwarpConnection::Shared shared;
  TcpFlows flows;
};

IwarpTransport::IwarpTransport(const Limits& limits, ConnectionTable& connections,
                               TrafficSink& sink)
    : work_(std::make_unique<Work>(limits, connections, sink)) {}
IwarpTransport::~IwarpTransport() = default;

TcpFlows& IwarpTransport::segments() {
  return work_->flows;
}

// The transport needs the addresses of the connection to find its TCP flow.
void IwarpTransport::forget(ConnectionId connection) {
  const auto found = work_->shared.established.find(connection);
  if (found == work_->shared.established.end()) return;
  work_->flows.forget(found->second->endpoints());
}

struct InfinibandTransport::Work {
  Work(const InfinibandLimits& limits, ConnectionTable& connections, TrafficSink& sink,
       ManagementSink* management)
      : analysis(limits, connections, sink, management) {}

  IbAnalysis analysis;
};

InfinibandTransport::InfinibandTransport(const InfinibandLimits& limits,
                                         ConnectionTable& connections, TrafficSink& sink,
                                         ManagementSink* management)
    : work_(std::make_unique<Work>(limits, connections, sink, management)) {}
InfinibandTransport::~InfinibandTransport() = default;

InfinibandPackets& InfinibandTransport::packets() {
  return work_->analysis;
}

const InfinibandCounts& InfinibandTransport::counts() const {
  return work_->analysis.counts();
}

void InfinibandTransport::forget(ConnectionId connection) {
  work_->analysis.forget(connection);
}

}  // namespace weft::capture
