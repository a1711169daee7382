#include "weft/capture/quality.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "capture/text/units.h"

namespace weft::capture {
namespace {

void add_connection(CaptureQuality& sums, const Connection& connection) {
  ++sums.connections;
  if (lacks_direction(connection)) ++sums.one_direction;
  // Queue pairs may begin without any message, so of them it is not known.
  if (connection.transport == Transport::iwarp &&
      connection.beginning == Connection::Beginning::traffic) {
    ++sums.begun_before;
  }
}

const char* were(std::uint64_t count) {
  return count == 1 ? "was" : "were";
}

std::string share_text(std::uint64_t count, std::uint64_t all, const char* what) {
  return fmt::format("{} of {}", count, count_text(all, what));
}

}  // namespace

void QualityMeter::on_gap(const Origin& /*origin*/, const Gap& gap) {
  if (gap.cut) {
    sums_.cut_bytes += gap.wire_bytes;
    return;
  }
  sums_.missing_bytes += gap.wire_bytes;
  sums_.missing_packets += gap.packets;
}

void QualityMeter::on_late(const Origin& /*origin*/, std::int64_t delay_ns) {
  ++(delay_ns <= longest_detour_ns ? sums_.late_packets : sums_.resent_packets);
}

// Adds a connection before it leaves the table. quality() adds those that are still there, so each
// connection counts once.
void QualityMeter::on_forget(ConnectionId connection) {
  add_connection(sums_, analysis_.connections()[connection]);
}

CaptureQuality QualityMeter::quality() const {
  CaptureQuality quality = sums_;
  quality.frames = analysis_.totals().frames;
  quality.cut_frames = analysis_.totals().truncated_frames;
  quality.copies = analysis_.packet_counts().copies + analysis_.infiniband().copies;
  quality.not_roce = analysis_.infiniband().not_roce;
  for (const Connection& one : analysis_.connections()) add_connection(quality, one);
  return quality;
}

std::vector<std::string> describe(const CaptureQuality& quality) {
  std::vector<std::string> all;
  if (quality.stopped) {
    all.emplace_back("Reading was stopped before the end, so this is about a part of the capture.");
  }
  for (const ClockDifference& clock : quality.clocks) {
    all.push_back(fmt::format(
        "The clock of {} is {} {} that of {}, measured by {}; this was corrected.", clock.path,
        duration_text(std::abs(clock.ahead_ns)), clock.ahead_ns > 0 ? "ahead of" : "behind",
        clock.reference, count_text(clock.samples, "packet")));
  }
  if (quality.cut_frames > 0) {
    all.push_back(fmt::format(
        "{} {} cut by the snap length: sizes and times are right, contents are missing.",
        share_text(quality.cut_frames, quality.frames, "frame"), were(quality.cut_frames)));
  }
  if (quality.cut_bytes > 0) {
    all.push_back(fmt::format("{} could not be decoded because the snap length cut their headers.",
                              bytes_text(quality.cut_bytes)));
  }
  if (quality.missing_bytes + quality.missing_packets > 0) {
    const bool one = quality.missing_packets == 1 && quality.missing_bytes == 0;
    all.push_back(fmt::format(
        "{} {} missing, or cannot be decoded because others are missing: the capture lost {}, or "
        "{} lost on the way to it.",
        amount_text(quality.missing_packets, quality.missing_bytes), one ? "is" : "are",
        one ? "it" : "them", one ? "it was" : "they were"));
  }
  if (quality.resent_packets > 0) {
    all.push_back(fmt::format("{} {} lost before the capture, which has the retransmission only.",
                              count_text(quality.resent_packets, "packet"),
                              were(quality.resent_packets)));
  }
  if (quality.late_packets > 0) {
    all.push_back(fmt::format("{} came after later ones, and {} put into order.",
                              count_text(quality.late_packets, "packet"),
                              were(quality.late_packets)));
  }
  if (quality.copies > 0) {
    all.push_back(fmt::format(
        "{} {} captured twice, as by a mirror of both directions or on two interfaces, and left "
        "out.",
        count_text(quality.copies, "packet"), were(quality.copies)));
  }
  if (quality.one_direction > 0) {
    all.push_back(fmt::format(
        "Of {}, the packets of one side only were captured: nothing is known about answers there.",
        share_text(quality.one_direction, quality.connections, "connection")));
  }
  if (quality.begun_before > 0) {
    all.push_back(fmt::format("The beginning of {} was not captured.",
                              share_text(quality.begun_before, quality.connections, "connection")));
  }
  if (quality.not_roce > 0) {
    all.push_back(fmt::format("{} to UDP port 4791 {} not RoCE, and left out.",
                              count_text(quality.not_roce, "packet"),
                              quality.not_roce == 1 ? "is" : "are"));
  }
  return all;
}

}  // namespace weft::capture
