// Passes the selected part of what the analysis finds to a report, and to the files of `--extract`
// and `--html`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/findings/latency_findings.h"
#include "capture/findings/stall_findings.h"
#include "capture/report/packet_export.h"
#include "capture/report/report.h"
#include "capture/report/report_html.h"
#include "capture/rpc/message_extraction.h"
#include "capture/rpc/nfs_images.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/credit_findings.hpp"
#include "weft/capture/quality.hpp"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/statistics.hpp"
#include "weft/capture/storage_tracker.hpp"
#include "weft/capture/traffic_findings.hpp"

namespace weft::cli {

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
  [[nodiscard]] capture::Results results() const {
    capture::Results results{analysis_, statistics_, rpcs_,
                             storage_,  findings_,   quality_.quality()};
    results.quality.stopped = stopped_;
    results.quality.clocks = clocks_;
    results.times = &times_;
    return results;
  }

  capture::Analysis& analysis_;
  capture::Selection selection_;
  const capture::ReportOptions& wanted_;
  const std::optional<capture::Severity> severity_;
  capture::Report& report_;
  capture::Statistics statistics_;
  capture::QualityMeter quality_;
  capture::RpcTracker rpcs_;
  capture::StorageTracker storage_;
  capture::ExchangeTimes times_;
  capture::TrafficFindings traffic_findings_;
  capture::CreditFindings credit_findings_;
  capture::LatencyFindings latency_findings_;
  capture::StallFindings stall_findings_;
  std::optional<Extraction> extraction_;
  std::optional<capture::HtmlReport> html_;
  std::optional<capture::PacketExport> packets_;
  std::uint64_t findings_ = 0;
  std::uint64_t failures_ = 0;
  bool stopped_ = false;
  std::vector<capture::ClockDifference> clocks_;
};

}  // namespace weft::cli
