#include "capture/findings/loss_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "capture/text/units.h"
#include "weft/capture/quality.hpp"

namespace weft::capture {

void LossFindings::on_late(const Origin& origin, std::int64_t delay_ns) {
  if (delay_ns <= longest_detour_ns) return;
  Losses& losses = pairs_.get(origin.connection)[origin.side == Side::a ? 0 : 1];
  ++losses.count;
  losses.total_ns += delay_ns;
  losses.longest_ns = std::max(losses.longest_ns, delay_ns);
  if (losses.stamps.size() < max_frames) losses.stamps.push_back(origin.stamp);
}

void LossFindings::on_close(ConnectionId connection) {
  const auto* const known = pairs_.find(connection);
  if (known == nullptr) return;
  for (const Side side : {Side::a, Side::b}) {
    const Losses& losses = (*known)[side == Side::a ? 0 : 1];
    if (losses.count == 0) continue;
    sink_->on_finding(
        {finding::lost_before, connection,
         fmt::format("{} from {} {} lost before the capture, which has the retransmission only: "
                     "later packets had to wait for {} in all and {} at most.",
                     count_text(losses.count, "packet"),
                     endpoint_text(connections_[connection], side),
                     losses.count == 1 ? "was" : "were", duration_text(losses.total_ns),
                     duration_text(losses.longest_ns)),
         losses.stamps});
  }
}

void LossFindings::finish() {
  for (const Connection& connection : connections_) on_close(connection.id);
  pairs_.clear();
}

void LossFindings::report_so_far(FindingSink& sink) {
  FindingSink* const own = std::exchange(sink_, &sink);
  for (const Connection& connection : connections_) on_close(connection.id);
  sink_ = own;
}

}  // namespace weft::capture
