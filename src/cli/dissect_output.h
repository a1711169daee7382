// Passes the selected part of what the analysis finds to a report, and to the files of `--extract`
// and `--html`.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/findings/all_findings.h"
#include "capture/report/packet_export.h"
#include "capture/report/report.h"
#include "capture/report/report_html.h"
#include "capture/rpc/message_extraction.h"
#include "capture/rpc/nfs_images.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/quality.hpp"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/statistics.hpp"
#include "weft/capture/storage_tracker.hpp"

namespace weft::cli {

// Remembers which of the findings that are collected until the end were shown before it. What
// happens again on the same side of a connection is not news.
class FindingNews {
 public:
  // Returns whether the finding is new, and remembers it.
  bool is_new(const capture::Finding& finding);
  void forget(capture::ConnectionId connection) { shown_.erase(connection); }

 private:
  using Key = std::pair<std::string_view, std::uint64_t>;  // kind and first frame
  std::map<capture::ConnectionId, std::set<Key>> shown_;
};

class DissectOutput final : private capture::OperationSink,
                            private capture::RpcSink,
                            private capture::StorageSink,
                            private capture::ManagementSink,
                            private capture::TrafficSink {
 public:
  // All references but the selection must outlive this. Must be made before the first packet is
  // analyzed. Findings below `severity` are left out; without it, notes are shown, but are no
  // failures.
  DissectOutput(capture::Analysis& analysis, const capture::Selection& selection,
                const capture::ReportOptions& wanted, capture::Report& report,
                std::optional<capture::Severity> severity = {});

  // Also writes the selected messages, RPCs and NFS files into a new directory. Throws if it cannot
  // be made.
  void extract_to(const std::string& directory);
  // Also writes an HTML page of the selected part to `write`, in finish().
  void draw_html(const capture::ReportOptions& options, capture::Report::Write write);
  // Also collects the frames of the selected part, for collected().
  void collect_packets() { packets_.emplace(analysis_, selection_); }
  // After finish(): writes the packets that were collected. Call collect_packets() before.
  [[nodiscard]] capture::PacketExport& collected() { return *packets_; }
  // Adds the clocks that were corrected to the quality of the capture.
  void set_clocks(std::vector<capture::ClockDifference> clocks) { clocks_ = std::move(clocks); }
  // Passes to `show` the selected findings that are collected until the end, as far as they are
  // known, each only once. Call it now and then while an endless input is read.
  void show_news(const std::function<void(const capture::Finding&)>& show);
  // Also passes the findings that are known at once to `show`, while it is set, unless the report
  // lists findings anyway. Not those of finish().
  void show_at_once(std::function<void(const capture::Finding&)> show) {
    at_once_ = std::move(show);
  }
  // Returns whether the selection includes the connection.
  [[nodiscard]] bool shows(const capture::Connection& connection) const {
    return selection_.shows(connection, analysis_);
  }
  // What is known so far. Valid until the next packet is analyzed.
  [[nodiscard]] capture::Results results() const {
    capture::Results results{analysis_, statistics_, rpcs_,
                             storage_,  findings_,   quality_.quality()};
    results.quality.stopped = stopped_;
    results.quality.clocks = clocks_;
    results.times = &times_;
    return results;
  }
  // Call at the end of the trace. `stopped`: its input was not read to the end.
  void finish(bool stopped);
  // The number of selected findings that are reason for a status other than 0.
  [[nodiscard]] std::uint64_t failures() const { return failures_; }

 private:
  struct Extraction {
    Extraction(const std::string& path, const DissectOutput& output);
    capture::ExtractionDirectory directory;
    capture::MessageExtraction messages;
    capture::RpcExtraction rpcs;
    capture::NfsImages images;
  };

  void on_operation(const capture::Operation& operation) override;
  void on_rpc(const capture::Rpc& rpc) override;
  void on_command(const capture::StorageCommand& command) override;
  void on_finding(const capture::Finding& finding) override;
  void on_management(const capture::ManagementDatagram& datagram) override;
  void on_forget(capture::ConnectionId connection) override;
  [[nodiscard]] bool shows(const capture::Finding& finding) const;

  capture::Analysis& analysis_;
  capture::Selection selection_;
  const capture::ReportOptions& wanted_;
  const std::optional<capture::Severity> severity_;
  capture::Report& report_;
  capture::Statistics statistics_;
  capture::QualityMeter quality_;
  capture::RpcTracker rpcs_;
  capture::StorageTracker storage_;
  capture::WaitTimes waits_;
  capture::ExchangeTimes times_;
  capture::AllFindings all_findings_;
  std::optional<Extraction> extraction_;
  std::optional<capture::HtmlReport> html_;
  std::optional<capture::PacketExport> packets_;
  FindingNews news_;
  std::function<void(const capture::Finding&)> at_once_;
  std::uint64_t findings_ = 0;
  std::uint64_t failures_ = 0;
  bool stopped_ = false;
  std::vector<capture::ClockDifference> clocks_;
};

}  // namespace weft::cli
