#include "capture/rpc_findings.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::capture {

void FindingReport::add(std::string_view kind, ConnectionId connection,
                        std::vector<std::uint64_t> frames, std::string sentence) {
  std::ranges::sort(frames);
  frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
  Count& count = counts_[{connection, kind}];
  if (!frames.empty()) count.last_frame = frames.back();
  if (++count.findings > max_of_a_kind) return;
  sink_->on_finding({kind, connection, std::move(sentence), std::move(frames)});
}

void FindingReport::add(std::string_view kind, const Rpc& rpc, std::string_view sentence) {
  std::vector<std::uint64_t> frames;
  if (rpc.call) frames.push_back(rpc.call->first.frame);
  if (rpc.reply) frames.push_back(rpc.reply->first.frame);
  add(kind, rpc.connection, std::move(frames),
      fmt::format("{} (XID 0x{:08x}) {}.", describe(rpc), rpc.xid, sentence));
}

void FindingReport::finish() {
  for (const auto& [key, count] : counts_) {
    if (count.findings <= max_of_a_kind) continue;
    sink_->on_finding({key.second,
                       key.first,
                       fmt::format("The same {} times more, the last in frame {}.",
                                   count.findings - max_of_a_kind, count.last_frame),
                       {count.last_frame}});
  }
  counts_.clear();
}

}  // namespace weft::capture
