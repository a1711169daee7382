// Keeps what an RpcTracker reports.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "capture/traffic_script.h"
#include "weft/capture/rpc.hpp"
#include "weft/capture/rpc_tracker.hpp"

namespace weft::capture::test {

struct RpcLog final : RpcSink {
  void on_rpc(const Rpc& rpc) override { rpcs.push_back(rpc); }
  void on_finding(const Finding& finding) override { findings.push_back(finding); }

  [[nodiscard]] std::size_t count(std::string_view kind) const {
    return static_cast<std::size_t>(std::ranges::count(findings, kind, &Finding::kind));
  }
  // For messages of failed expectations.
  [[nodiscard]] std::string all() const {
    std::string text;
    for (const Finding& finding : findings) {
      text += std::string(finding.kind) + ": " + finding.sentence + "\n";
    }
    return text;
  }

  std::vector<Rpc> rpcs;
  std::vector<Finding> findings;
};

// Where something is missing, its place is reported; the rest is as it was sent.
inline void expect_never_silently_wrong(const Assembled& found, const Buffer& sent) {
  if (found.whole()) {
    EXPECT_EQ(found, Assembled(sent));
    return;
  }
  ASSERT_TRUE(found.size() == sent.size() || found.open_end())
      << describe_flaws(found) << " " << found.size() << " " << sent.size();
  // Bytes behind an open end have another place in the message as it was sent.
  if (found.open_end()) return;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (found.whole(i, i + 1)) {
      ASSERT_EQ(found.bytes()[i], sent[i]) << "byte " << i;
    }
  }
}

// What the tracker makes of a script.
inline RpcLog followed(const TrafficScript& script, const RpcLimits& limits = {}) {
  RpcLog log;
  RpcTracker tracker(log, limits);
  script.feed(tracker);
  tracker.finish();
  return log;
}

}  // namespace weft::capture::test
