#include "capture/rpc_findings.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::capture {

void FindingReport::add(std::string_view kind, ConnectionId connection, std::vector<Stamp> stamps,
                        std::string sentence) {
  std::ranges::sort(stamps, {}, &Stamp::frame);
  const auto same = [](const Stamp& a, const Stamp& b) { return a.frame == b.frame; };
  stamps.erase(std::unique(stamps.begin(), stamps.end(), same), stamps.end());
  Count& count = counts_[{connection, kind}];
  if (!stamps.empty()) count.last = stamps.back();
  if (++count.findings > max_of_a_kind) return;
  sink_->on_finding({kind, connection, std::move(sentence), std::move(stamps)});
}

void FindingReport::add(std::string_view kind, const Rpc& rpc, std::string_view sentence) {
  std::vector<Stamp> stamps;
  if (rpc.call) stamps.push_back(rpc.call->first);
  if (rpc.reply) stamps.push_back(rpc.reply->first);
  add(kind, rpc.connection, std::move(stamps),
      fmt::format("{} (XID 0x{:08x}) {}.", describe(rpc), rpc.xid, sentence));
}

void FindingReport::finish() {
  for (const auto& [key, count] : counts_) {
    if (count.findings <= max_of_a_kind) continue;
    sink_->on_finding({key.second,
                       key.first,
                       fmt::format("The same {} times more, the last in frame {}.",
                                   count.findings - max_of_a_kind, count.last.frame),
                       {count.last}});
  }
  counts_.clear();
}

}  // namespace weft::capture
