#include "capture/findings/rpc_findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/text/units.h"

namespace weft::capture {

namespace {

// Stores the handles of all segments, up to the limit, so that findings can be selected by key.
void add_keys(std::vector<std::uint32_t>& keys, const ChunkLists& lists) {
  const auto add = [&](const wire::RdmaSegment& segment) {
    if (keys.size() < Finding::max_keys) keys.push_back(segment.handle);
  };
  for (const wire::ReadSegment& read : lists.reads) add(read.target);
  for (const Chunk& chunk : lists.writes) std::ranges::for_each(chunk, add);
  if (lists.reply) std::ranges::for_each(*lists.reply, add);
}

}  // namespace

// Passes a finding on, with its frames sorted and without duplicates. After max_of_a_kind findings
// it only counts.
void FindingReport::add(Finding finding) {
  std::vector<Stamp>& stamps = finding.stamps;
  std::ranges::sort(stamps, {}, &Stamp::frame);
  const auto same = [](const Stamp& a, const Stamp& b) { return a.frame == b.frame; };
  stamps.erase(std::unique(stamps.begin(), stamps.end(), same), stamps.end());
  Count& count = counts_[{finding.connection, finding.kind}];
  if (!stamps.empty()) count.last = stamps.back();
  if (++count.findings > max_of_a_kind) return;
  sink_->on_finding(finding);
}

// Builds the finding from the RPC: its name and XID begin the sentence.
void FindingReport::add(std::string_view kind, const Rpc& rpc, std::string_view sentence) {
  Finding finding{kind,
                  rpc.connection,
                  fmt::format("{} (XID 0x{:08x}) {}.", describe(rpc), rpc.xid, sentence),
                  {},
                  rpc.xid};
  for (const auto* message : {&rpc.call, &rpc.reply}) {
    if (!*message) continue;
    finding.stamps.push_back((*message)->first);
    add_keys(finding.keys, (*message)->lists);
  }
  add(std::move(finding));
}

// The map is ordered by connection, so all kinds of one connection are adjacent.
void FindingReport::close(ConnectionId connection) {
  const auto begin = counts_.lower_bound({connection, {}});
  const auto end = counts_.lower_bound({connection + 1, {}});
  report_rest(begin, end);
  counts_.erase(begin, end);
}

void FindingReport::finish() {
  report_rest(counts_.begin(), counts_.end());
  counts_.clear();
}

void FindingReport::report_rest(Counts::const_iterator begin, Counts::const_iterator end) {
  for (auto at = begin; at != end; ++at) {
    const auto& [key, count] = *at;
    if (count.findings <= max_of_a_kind) continue;
    sink_->on_finding({key.second,
                       key.first,
                       fmt::format("The same {} more, the last in frame {}.",
                                   times_text(count.findings - max_of_a_kind), count.last.frame),
                       {count.last}});
  }
}

}  // namespace weft::capture
