// Every kind of finding about the traffic of a trace. RpcTracker reports those about RPCs.
#pragma once

#include "capture/findings/congestion_findings.h"
#include "capture/findings/latency_findings.h"
#include "capture/findings/loss_findings.h"
#include "capture/findings/path_findings.h"
#include "capture/findings/stall_findings.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/credit_findings.hpp"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture {

class AllFindings {
 public:
  // Both must outlive this object.
  AllFindings(const ConnectionTable& connections, FindingSink& sink)
      : traffic_(connections, sink),
        credits_(connections, sink),
        latencies_(connections, sink),
        stalls_(connections, sink),
        losses_(connections, sink),
        paths_(connections, sink),
        congestion_(connections, sink) {}

  // Adds the sinks of traffic and of operations. Call it before the first packet.
  void add_to(Analysis& analysis) {
    analysis.add_sink(traffic_);
    analysis.add_sink(credits_);
    analysis.add_sink(latencies_);
    analysis.add_sink(stalls_);
    analysis.add_sink(losses_);
    analysis.add_sink(paths_);
    analysis.add_sink(congestion_);
    analysis.add_operations(traffic_);
    analysis.add_operations(latencies_);
    analysis.add_operations(stalls_);
  }
  void on_rpc(const Rpc& rpc) { latencies_.on_rpc(rpc); }
  // Ends the trace: reports what was collected.
  void finish() {
    for_each([](auto& findings) { findings.finish(); });
  }
  // Reports to `sink` what was collected so far, and keeps it.
  void report_so_far(FindingSink& sink) {
    for_each([&sink](auto& findings) { findings.report_so_far(sink); });
  }

 private:
  template <typename Act>
  void for_each(const Act& act) {
    act(traffic_);
    act(credits_);
    act(latencies_);
    act(stalls_);
    act(losses_);
    act(paths_);
    act(congestion_);
  }

  TrafficFindings traffic_;
  CreditFindings credits_;
  LatencyFindings latencies_;
  StallFindings stalls_;
  LossFindings losses_;
  PathFindings paths_;
  CongestionFindings congestion_;
};

}  // namespace weft::capture
