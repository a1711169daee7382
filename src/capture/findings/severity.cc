#include <algorithm>
#include <array>

#include "capture/findings/congestion_findings.h"
#include "capture/findings/latency_findings.h"
#include "capture/findings/loss_findings.h"
#include "capture/findings/path_findings.h"
#include "capture/findings/stall_findings.h"
#include "weft/capture/credit_findings.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/rpc_findings.hpp"
#include "weft/capture/traffic_findings.hpp"

namespace weft::capture {
namespace {

// What costs time, or makes the results incomplete. Everything else violates a protocol, or failed.
constexpr std::array warnings{
    finding::not_ready,
    finding::sequence_error,
    finding::repeated,
    finding::not_captured,
    finding::congestion,
    finding::congested_port,
    finding::mtu_change,
    finding::lost_before,
    finding::half_open,
    finding::reset,
    finding::credit_stall,
    finding::delayed_acknowledgement,
    finding::retransmission_timer,
    finding::slow_answer,
    finding::slow_acknowledgement,
    finding::slow_reply,
    finding::silence,
    finding::zero_window,
    finding::rpc_credit_stall,
    finding::retransmitted,
    finding::incomplete,
    finding::rejected_connection,
    finding::unanswered_connection,
};

// What needs the other direction to be known.
constexpr std::array about_answers{
    finding::unanswered_request,
    finding::unanswered,
    finding::without_call,
    finding::half_open,
    finding::credit_stall,
    finding::delayed_acknowledgement,
    finding::slow_answer,
    finding::slow_acknowledgement,
    finding::slow_reply,
    finding::silence,
    finding::retries_exhausted,
    finding::rpc_credit_stall,
    finding::incomplete,
    finding::not_captured,
    finding::unanswered_connection,
    finding::violations[static_cast<std::size_t>(Violation::Kind::answer_without_request)],
};

}  // namespace

const char* to_string(Severity severity) {
  switch (severity) {
    case Severity::note:
      return "note";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "?";
}

Severity severity_of(const Finding& finding) {
  if (finding.severity) return *finding.severity;
  if (finding.kind == finding::one_direction || finding.kind == finding::path_change) {
    return Severity::note;
  }
  return std::ranges::find(warnings, finding.kind) != warnings.end() ? Severity::warning
                                                                     : Severity::error;
}

bool is_supported(const Finding& finding, const Connection& connection) {
  return !lacks_direction(connection) ||
         std::ranges::find(about_answers, finding.kind) == about_answers.end();
}

}  // namespace weft::capture
