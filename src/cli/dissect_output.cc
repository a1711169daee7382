#include "cli/dissect_output.h"

#include <utility>

namespace weft::cli {

DissectOutput::DissectOutput(capture::Analysis& analysis, const capture::Selection& selection,
                             const capture::ReportOptions& wanted, capture::Report& report,
                             std::optional<capture::Severity> severity)
    : analysis_(analysis),
      selection_(selection),
      wanted_(wanted),
      severity_(severity),
      report_(report),
      quality_(analysis),
      rpcs_(*this, {}, &analysis.connections()),
      storage_(analysis.connections(), *this),
      waits_(analysis.connections()),
      times_(analysis.connections(), waits_, wanted.slowest),
      all_findings_(analysis.connections(), *this) {
  analysis.add_sink(*this);  // first: the others forget at on_forget() what it shows then
  analysis.add_sink(statistics_);
  analysis.add_sink(quality_);
  analysis.add_sink(waits_);  // before the trackers, which report exchanges at their ends
  analysis.add_sink(rpcs_);
  analysis.add_sink(storage_);
  if (wanted.management) analysis.add_management(*this);
  analysis.add_operations(*this);
  all_findings_.add_to(analysis);
}

// The extraction is a member of `output`, so that the functions may refer to it.
DissectOutput::Extraction::Extraction(const std::string& path, const DissectOutput& output)
    : directory(path),
      messages(directory, {.connection =
                               [&output](capture::ConnectionId id) {
                                 return output.selection_.takes(output.analysis_.connections()[id]);
                               },
                           .message =
                               [&output](const capture::Operation& message) {
                                 return output.selection_.takes_message(message, output.analysis_);
                               }}),
      rpcs(directory),
      images(directory) {}

void DissectOutput::extract_to(const std::string& directory) {
  extraction_.emplace(directory, *this);
  analysis_.add_sink(extraction_->messages);
}

void DissectOutput::draw_html(const capture::ReportOptions& options, capture::Report::Write write) {
  html_.emplace(options, analysis_, std::move(write));
  analysis_.add_sink(*html_);
}

void DissectOutput::on_operation(const capture::Operation& operation) {
  if (!selection_.takes(operation, analysis_)) return;
  selection_.note(operation.connection);
  statistics_.on_operation(operation);
  // On a connection with RPCs or storage commands the exchange is one of those.
  const bool single =
      !rpcs_.recognised(operation.connection) && storage_.of(operation.connection) == nullptr;
  if (single) times_.add(operation);
  if (wanted_.operations) report_.operation(operation, analysis_);
  if (html_) html_->operation(operation, analysis_);
  if (packets_) packets_->add(operation);
}

void DissectOutput::on_rpc(const capture::Rpc& rpc) {
  all_findings_.on_rpc(rpc);  // compares all of them, whatever is selected
  if (!selection_.takes(rpc, analysis_)) return;
  selection_.note(rpc.connection);
  times_.add(rpc);
  if (wanted_.rpcs) report_.rpc(rpc, analysis_);
  if (html_) html_->rpc(rpc, analysis_);
  if (packets_) packets_->add(rpc);
  if (!extraction_) return;
  extraction_->rpcs.add(rpc);
  extraction_->images.add(rpc);
}

void DissectOutput::on_command(const capture::StorageCommand& command) {
  if (!selection_.takes(command, analysis_)) return;
  selection_.note(command.connection);
  times_.add(command);
  if (wanted_.commands) report_.command(command, analysis_);
  if (html_) html_->command(command, analysis_);
  if (packets_) packets_->add(command);
}

// A finding that the capture is not complete enough to support is left out.
bool DissectOutput::shows(const capture::Finding& finding) const {
  return selection_.takes(finding, analysis_) &&
         is_supported(finding, analysis_.connections()[finding.connection]) &&
         (!severity_ || severity_of(finding) >= *severity_);
}

void DissectOutput::on_finding(const capture::Finding& finding) {
  if (!shows(finding)) return;
  const capture::Severity severity = severity_of(finding);
  selection_.note(finding.connection);
  ++findings_;
  // A severity that was asked for is what counts as a failure, notes included.
  if (severity_ || severity > capture::Severity::note) ++failures_;
  if (wanted_.findings) report_.finding(finding, analysis_);
  if (!wanted_.findings && at_once_) at_once_(finding);
  if (html_) html_->finding(finding, analysis_);
  if (packets_) packets_->add(finding);
}

// Only the end of the trace shows that a side was silent, or did not answer any more.
bool FindingNews::is_new(const capture::Finding& finding) {
  namespace kind = capture::finding;
  if (finding.kind == kind::one_direction || finding.kind == kind::retries_exhausted) return false;
  // The slowest one changes, and the finding with it.
  const bool slowest = finding.kind == kind::slow_answer ||
                       finding.kind == kind::slow_acknowledgement ||
                       finding.kind == kind::slow_reply;
  const std::uint64_t frame = slowest || finding.stamps.empty() ? 0 : finding.stamps.front().frame;
  return shown_[finding.connection].emplace(finding.kind, frame).second;
}

void DissectOutput::show_news(const std::function<void(const capture::Finding&)>& show) {
  struct News final : capture::FindingSink {
    News(DissectOutput& output, const std::function<void(const capture::Finding&)>& show)
        : output_(output), show_(show) {}
    void on_finding(const capture::Finding& finding) override {
      if (output_.shows(finding) && output_.news_.is_new(finding)) show_(finding);
    }

   private:
    DissectOutput& output_;
    const std::function<void(const capture::Finding&)>& show_;
  } news(*this, show);
  all_findings_.report_so_far(news);
}

void DissectOutput::on_management(const capture::ManagementDatagram& datagram) {
  if (selection_.takes(datagram, analysis_)) report_.management(datagram, analysis_);
}

// The analysis is about to forget a connection: the last chance to report it.
void DissectOutput::on_forget(capture::ConnectionId id) {
  const capture::Connection& connection = analysis_.connections()[id];
  if (extraction_) extraction_->images.forget(id);
  if (packets_) packets_->add(connection);
  const bool shown = selection_.shows(connection, analysis_);
  selection_.with_selected.erase(id);
  news_.forget(id);
  if (!shown) return;
  report_.forgotten(connection, results());
  if (html_) html_->forgotten(connection, results());
}

// The trackers are finished first: they report what was still open to the sinks of this class.
void DissectOutput::finish(bool stopped) {
  stopped_ = stopped;
  rpcs_.finish();
  storage_.finish();
  all_findings_.finish();
  if (extraction_) {
    extraction_->messages.finish();
    extraction_->images.finish();
    // This is the last one, because it writes the rest of the index, to which the others still add.
    extraction_->directory.finish();
  }
  report_.finish(results(), selection_);
  if (html_) html_->finish(results(), selection_);
}

}  // namespace weft::cli
