// A capture with what an analysis of it reports: connections, traffic and operations.
#pragma once

#include <set>

#include "capture/made_capture.h"
#include "capture/traffic_log.h"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture::test {

struct Analysed {
  Analysis analysis;
  TrafficLog traffic;
  OperationLog operations;

  explicit Analysed(const MadeCapture& capture) {
    analysis.add_sink(traffic);
    analysis.add_operations(operations);
    feed(analysis, capture);
  }

  [[nodiscard]] std::size_t connections() const { return analysis.connections().size(); }
  [[nodiscard]] const Connection& connection(ConnectionId id = 0) const {
    return analysis.connections()[id];
  }
  [[nodiscard]] std::set<TrafficLog::MessageKey> whole() const {
    std::set<TrafficLog::MessageKey> keys;
    for (const auto* messages : {&traffic.sends, &traffic.writes, &traffic.reads}) {
      for (const auto& [key, message] : *messages) {
        if (message.whole()) keys.insert(key);
      }
    }
    return keys;
  }
};

// Reports the findings about the transport to `log`.
inline void find_in(const MadeCapture& capture, FindingSink& log) {
  Analysis analysis;
  TrafficFindings findings(analysis.connections(), log);
  analysis.add_sink(findings);
  analysis.add_operations(findings);
  feed(analysis, capture);
  findings.finish();
}

}  // namespace weft::capture::test
