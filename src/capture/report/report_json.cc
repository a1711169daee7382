// JSON lines. docs/dissect.md describes them. Existing fields never change; new ones are added.
#include <string>
#include <utility>
#include <vector>

#include "capture/report/report.h"
#include "capture/report/report_json.h"
#include "capture/report/rpc_json.h"
#include "capture/text/json_line.h"
#include "capture/text/units.h"

namespace weft::capture {
namespace {

const char* name_of(Transport transport) {
  switch (transport) {
    case Transport::iwarp:
      return "iwarp";
    case Transport::rc:
      return "rc";
    case Transport::uc:
      return "uc";
    case Transport::ud:
      return "ud";
    case Transport::rd:
      return "rd";
    case Transport::xrc:
      return "xrc";
  }
  return "unknown";
}

const char* name_of(Side side) {
  return side == Side::a ? "a" : "b";
}

// In the order of Violation::Kind, which is the index.
constexpr const char* violation_names[violation_kinds] = {"bad_checksum",
                                                          "bad_marker",
                                                          "bad_version",
                                                          "bad_header",
                                                          "unexpected_message",
                                                          "unexpected_offset",
                                                          "answer_without_request",
                                                          "answer_beyond_request",
                                                          "wrong_length"};

// A queue pair number that was never seen is left out.
void add_endpoint(JsonLine& line, const char* name, const Connection& connection, Side side) {
  const Endpoint& endpoint = connection.endpoint(side);
  line.object(name).text("address", to_string(endpoint.address));
  if (endpoint.known) {
    line.number(connection.transport == Transport::iwarp ? "port" : "qp", endpoint.number);
  }
  line.close();
}

// The offers of one side. Only MPA has a revision, CRCs and markers.
void add_offer(JsonLine& line, const char* name, const Connection::Offer& offer, bool iwarp) {
  if (!offer.seen) return;
  line.object(name);
  if (iwarp) {
    line.number("revision", offer.revision).boolean("crc", offer.crc);
    line.boolean("markers", offer.markers);
  }
  if (offer.has_depths) line.number("ird", offer.ird).number("ord", offer.ord);
  std::string hex;
  for (const std::byte byte : offer.private_data) {
    hex += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  line.text("private_data", hex).close();
}

void add_latency(JsonLine& line, const Histogram& latency) {
  line.object("latency_ns").number("count", latency.count()).number("min", latency.min());
  line.number("mean", latency.mean()).number("p50", latency.percentile(50));
  line.number("p90", latency.percentile(90)).number("p99", latency.percentile(99));
  line.number("max", latency.max()).close();
}

void add_kind(JsonLine& line, Side side, Operation::Kind kind, const KindStatistics& statistics) {
  line.element().text("side", name_of(side)).text("kind", to_string(kind));
  line.number("count", statistics.count).number("bytes", statistics.bytes);
  line.number("not_complete", statistics.not_complete);
  if (statistics.latency.count() > 0) add_latency(line, statistics.latency);
  line.close();
}

void add_side(JsonLine& line, const char* name, const SideStatistics& side) {
  line.object(name).number("repeated_bytes", side.repeated_bytes).number("repeats", side.repeats);
  line.number("repeated_ns", side.repeating.lost_ns());
  line.number("lost_bytes", side.lost_bytes)
      .number("lost_packets", side.lost_packets)
      .number("cut_bytes", side.cut_bytes);
  line.number("gaps", side.gaps).number("refusals", side.refusals);
  line.number("receiver_not_ready", side.receiver_not_ready);
  line.number("receiver_not_ready_ns", side.receiver_not_ready_ns);
  line.number("sequence_errors", side.sequence_errors);
  line.number("congestion_marked", side.congestion_marked);
  line.number("congestion_notified", side.congestion_notified).object("violations");
  for (std::size_t i = 0; i < violation_kinds; ++i) {
    if (side.violations[i] > 0) line.number(violation_names[i], side.violations[i]);
  }
  line.close().close();
}

// Writes the throughput of both sides, and what told them to slow down, with intervals of the same
// width.
void add_throughput(JsonLine& line, const ConnectionStatistics& statistics) {
  if (!statistics.carried_from_ns) return;
  using Series = TimeSeriesOf<64>;
  // The series are copies, so the statistics keep their own widths. Each is widened to the widest.
  std::vector<std::pair<const char*, Series>> all{{"a_bytes", statistics.a.carried},
                                                  {"b_bytes", statistics.b.carried}};
  if (statistics.a.congestion) all.emplace_back("a_congestion", *statistics.a.congestion);
  if (statistics.b.congestion) all.emplace_back("b_congestion", *statistics.b.congestion);
  std::uint64_t width_ns = 0;
  for (const auto& [name, series] : all) width_ns = std::max(width_ns, series.width_ns());
  line.object("throughput").number("from_ns", *statistics.carried_from_ns);
  line.number("interval_ns", width_ns);
  for (auto& [name, series] : all) {
    series.widen_to(width_ns);
    line.array(name);
    for (std::size_t i = 0; i < series.size(); ++i) line.item(series[i]);
    line.close(']');
  }
  line.close();
}

void add_counts(JsonLine& line, const RpcCounts& counts) {
  line.object("rpcs").number("calls", counts.calls).number("replies", counts.replies);
  line.number("retransmissions", counts.retransmissions).number("unanswered", counts.unanswered);
  line.number("replies_without_call", counts.replies_without_call);
  line.number("errors", counts.errors).number("malformed", counts.malformed);
  line.number("without_segment_bytes", counts.without_segment).close();
}

}  // namespace

// Writes one connection with all its sums. The page uses the same object.
void write_connection_json(fmt::memory_buffer& out, const Connection& connection,
                           const Results& results) {
  const ConnectionStatistics& statistics = results.statistics.of(connection.id);
  JsonLine line(out);
  line.text("type", "connection").number("connection", shown_number(connection.id));
  line.text("transport", name_of(connection.transport));
  add_endpoint(line, "a", connection, Side::a);
  add_endpoint(line, "b", connection, Side::b);
  line.text("beginning",
            connection.beginning == Connection::Beginning::handshake ? "handshake" : "traffic");
  line.text("end", to_string(connection.end));
  if (connection.end == Connection::End::rejected && connection.reject_reason != 0) {
    line.text("reject_reason", reject_reason_text(connection.reject_reason));
  }
  line.number("frames", connection.frames);
  line.number("first_frame", connection.first.frame).number("first_ns", connection.first.time_ns);
  line.number("last_frame", connection.last.frame).number("last_ns", connection.last.time_ns);
  line.boolean("crc", connection.crc);
  if (connection.mtu_bytes > 0) line.number("mtu_bytes", connection.mtu_bytes);
  if (connection.control_words > 0) line.number("control_words", connection.control_words);
  const bool iwarp = connection.transport == Transport::iwarp;
  add_offer(line, "offer_a", connection.offer_a, iwarp);
  add_offer(line, "offer_b", connection.offer_b, iwarp);
  line.array("operations");
  for (const Side side : {Side::a, Side::b}) {
    for (std::size_t kind = 0; kind < operation_kinds; ++kind) {
      const KindStatistics& of_kind = statistics.of(side).kinds[kind];
      if (of_kind.count > 0) add_kind(line, side, static_cast<Operation::Kind>(kind), of_kind);
    }
  }
  line.close(']');
  add_throughput(line, statistics);
  add_side(line, "side_a", statistics.a);
  add_side(line, "side_b", statistics.b);
  if (results.rpcs.recognised(connection.id)) {
    add_counts(line, results.rpcs.counts(connection.id));
  }
  if (const StorageTraffic* storage = results.storage.of(connection.id)) {
    line.object("upper").text("protocol", to_string(storage->protocol)).object("messages");
    for (const auto& [name, count] : storage->messages) line.number(name, count);
    line.close().close();
  }
  line.end();
}

// Writes where the time of an exchange, or of several, went.
void add_parts(JsonLine& line, const TimeParts& parts) {
  line.number("transfer_ns", parts.transfer_ns).number("server_ns", parts.server_ns);
  line.number("receives_ns", parts.receives_ns).number("repeats_ns", parts.repeats_ns);
  line.number("credits_ns", parts.credits_ns).number("queue_ns", parts.queue_ns);
  line.number("slots_ns", parts.slots_ns).number("client_ns", parts.client_ns);
}

// The procedures, and the slowest exchanges if they were wanted.
void write_times_json(fmt::memory_buffer& out, const ExchangeTimes& times, bool procedures) {
  for (const ProcedureTimes* one :
       procedures ? times.procedures() : decltype(times.procedures())()) {
    JsonLine line(out);
    line.text("type", "procedure").text("name", one->name);
    line.number("count", one->latency.count()).number("failed", one->failed);
    add_latency(line, one->latency);
    line.number("total_ns", one->total_ns);
    add_parts(line, one->parts);
    line.end();
  }
  std::uint64_t rank = 0;
  for (const SlowExchange& one : times.slowest()) {
    JsonLine line(out);
    line.text("type", "slow").number("rank", ++rank);
    line.number("connection", shown_number(one.connection)).text("side", name_of(one.side));
    line.text("name", one.name);
    if (one.xid) line.hex("xid", *one.xid);
    line.number("latency_ns", one.latency_ns);
    add_parts(line, one.parts);
    line.number("start_frame", one.first.frame).number("start_ns", one.first.time_ns);
    line.number("end_frame", one.last.frame).number("end_ns", one.last.time_ns);
    line.text("story", one.story).end();
  }
}

void write_trace_json(fmt::memory_buffer& out, const std::string& name, const Results& results) {
  const Analysis& analysis = results.analysis;
  const auto& totals = analysis.totals();
  const auto& packets = analysis.packet_counts();
  JsonLine line(out);
  line.text("type", "trace").text("name", name).number("frames", totals.frames);
  line.number("wire_bytes", totals.wire_bytes).number("captured_bytes", totals.captured_bytes);
  line.number("first_ns", totals.first_ns).number("last_ns", totals.last_ns);
  line.number("connections", analysis.connections().size());
  line.number("connections_forgotten", analysis.connections().forgotten());
  line.number("operations", results.statistics.operations());
  add_counts(line, results.rpcs.counts());
  line.number("findings", results.findings);
  line.number("tcp_connections", analysis.tcp_connections());
  line.number("tcp_connections_forgotten", analysis.tcp_forgotten());
  const auto& infiniband = analysis.infiniband();
  line.number("infiniband_packets", infiniband.packets);
  line.number("infiniband_malformed", infiniband.malformed);
  line.number("infiniband_cut_short", infiniband.cut_short);
  line.number("infiniband_unknown", infiniband.unknown);
  line.number("infiniband_bad_checksum", infiniband.bad_checksum);
  line.number("infiniband_management", infiniband.management);
  line.number("congestion_notifications", infiniband.congestion_notifications);
  if (infiniband.dropped_requests > 0) {
    line.number("infiniband_dropped_requests", infiniband.dropped_requests);
  }
  line.number("truncated_frames", totals.truncated_frames);
  line.number("other_frames", packets.other).number("malformed_frames", packets.malformed);
  line.number("cut_short_frames", packets.cut_short);
  line.number("unknown_link_frames", packets.unknown_link).end();
}

// Everything is there, so that programs need not know which fields may be missing.
void write_capture_json(fmt::memory_buffer& out, const Results& results) {
  const CaptureQuality& quality = results.quality;
  JsonLine line(out);
  line.text("type", "capture").number("frames", quality.frames);
  line.number("cut_frames", quality.cut_frames).number("cut_bytes", quality.cut_bytes);
  line.number("missing_bytes", quality.missing_bytes);
  line.number("missing_packets", quality.missing_packets);
  line.number("resent_packets", quality.resent_packets);
  line.number("late_packets", quality.late_packets).number("copies", quality.copies);
  line.number("not_roce", quality.not_roce).number("connections", quality.connections);
  line.number("one_direction", quality.one_direction);
  line.number("begun_before", quality.begun_before).boolean("stopped", quality.stopped);
  line.array("sentences");
  for (const std::string& sentence : describe(quality)) line.item(sentence);
  line.close(']');
  const auto add = [&](const char* name, const std::vector<PacketDecoder::Named>& all) {
    line.array(name);
    for (const auto& one : all) {
      line.element().text("name", one.name).number("frames", one.packets).close();
    }
    line.close(']');
  };
  add("tunnels", results.analysis.tunnels());
  add("other_protocols", results.analysis.other_protocols());
  line.end();
}

namespace {

class JsonReport final : public Report {
 public:
  using Report::Report;

  void operation(const Operation& operation, const Analysis& /*analysis*/) override;
  void rpc(const Rpc& rpc, const Analysis& analysis) override;
  void command(const StorageCommand& command, const Analysis& analysis) override;
  void finding(const Finding& finding, const Analysis& /*analysis*/) override {
    write(finding, false);
  }
  void finding_so_far(const Finding& finding, const Analysis& /*analysis*/) override {
    write(finding, true);
  }
  void management(const ManagementDatagram& datagram, const Analysis& analysis) override;
  void forgotten(const Connection& connection, const Results& results) override;
  void finish(const Results& results, const Selection& selection) override;

 private:
  void write(const Finding& finding, bool so_far);

  std::uint64_t rpcs_ = 0;
};

void JsonReport::operation(const Operation& operation, const Analysis& /*analysis*/) {
  JsonLine line(out());
  line.text("type", "operation").number("operation", operation.number);
  line.number("connection", shown_number(operation.connection));
  line.text("side", name_of(operation.side)).text("kind", to_string(operation.kind));
  line.text("outcome", to_string(operation.outcome)).number("message", operation.message);
  line.number("bytes", operation.bytes).number("missing_bytes", operation.missing_bytes);
  if (operation.cut_bytes > 0) line.number("cut_bytes", operation.cut_bytes);
  line.number("start_frame", operation.start.frame).number("start_ns", operation.start.time_ns);
  line.number("end_frame", operation.end.frame).number("end_ns", operation.end.time_ns);
  if (operation.confirmed && !operation.is_request()) {
    line.number("confirmed_frame", operation.confirmation.frame);
    line.number("confirmed_ns", operation.confirmation.time_ns);
  }
  if (operation.latency_ns() >= 0) line.number("latency_ns", operation.latency_ns());
  if (operation.is_request() || operation.kind == Operation::Kind::write) {
    line.hex("key", operation.key).hex("address", operation.address);
  }
  if (operation.kind == Operation::Kind::read) {
    line.number("requested_bytes", operation.requested_bytes);
    line.boolean("repeated", operation.repeated);
  } else if (operation.is_request()) {
    line.hex("original", operation.original).hex("swap_or_add", operation.swap_or_add);
    line.hex("compare", operation.compare);
  } else if (operation.kind != Operation::Kind::write) {
    line.boolean("solicited", operation.send_kind == SendKind::solicited ||
                                  operation.send_kind == SendKind::solicited_invalidate);
  }
  if (operation.not_ready > 0) line.number("not_ready", operation.not_ready);
  if (operation.has_immediate) line.number("immediate", operation.immediate);
  if (operation.invalidated_key != 0) line.hex("invalidated_key", operation.invalidated_key);
  line.end();
  flush_if_full();
}

void JsonReport::rpc(const Rpc& rpc, const Analysis& /*analysis*/) {
  write_json(out(), rpc, ++rpcs_);
  flush_if_full();
}

void JsonReport::command(const StorageCommand& command, const Analysis& /*analysis*/) {
  JsonLine line(out());
  line.text("type", "command").number("command", command.number);
  line.number("connection", shown_number(command.connection));
  line.text("side", name_of(command.requester)).text("protocol", to_string(command.protocol));
  line.text("name", describe(command)).text("outcome", to_string(command.outcome));
  line.hex("id", command.id);
  if (command.answer) line.hex("status_code", command.status).text("status", command.status_text);
  if (command.queue) line.number("queue", *command.queue);
  if (command.unit) line.number("unit", *command.unit);
  if (command.block) line.number("block", *command.block);
  if (command.blocks) line.number("blocks", *command.blocks);
  if (!command.file.empty()) line.text("file", printable(command.file));
  if (command.offset) line.number("offset", *command.offset);
  if (!command.subject.empty()) line.text("subject", command.subject);
  line.number("bytes", command.bytes).array("keys");
  for (const std::uint32_t key : command.keys) line.item(fmt::format("{:#x}", key));
  line.close(']');
  if (command.request) {
    line.number("frame", command.request->frame).number("ns", command.request->time_ns);
  }
  if (command.interim) line.number("interim_frame", command.interim->frame);
  if (command.answer) {
    line.number("answer_frame", command.answer->frame);
    line.number("answer_ns", command.answer->time_ns);
  }
  line.number("last_frame", command.last.frame);
  if (command.latency_ns >= 0) line.number("latency_ns", command.latency_ns);
  line.number("transfer_ns", command.transfer_ns).end();
  flush_if_full();
}

void JsonReport::write(const Finding& finding, bool so_far) {
  JsonLine line(out());
  line.text("type", "finding").text("kind", finding.kind);
  line.text("severity", to_string(severity_of(finding)));
  line.number("connection", shown_number(finding.connection));
  if (finding.xid) line.hex("xid", *finding.xid);
  if (so_far) line.boolean("so_far", true);
  line.text("sentence", finding.sentence).array("frames");
  for (const Stamp& stamp : finding.stamps) line.item(stamp.frame);
  line.close(']').array("times_ns");
  for (const Stamp& stamp : finding.stamps) line.item(stamp.time_ns);
  line.close(']').end();
  flush_if_full();
}

void JsonReport::management(const ManagementDatagram& datagram, const Analysis& /*analysis*/) {
  JsonLine line(out());
  line.text("type", "management").number("frame", datagram.stamp.frame);
  line.number("ns", datagram.stamp.time_ns).text("source", to_string(datagram.source));
  line.text("destination", to_string(datagram.destination)).number("qp", datagram.queue_pair);
  line.text("class", class_text(datagram)).text("method", method_text(datagram));
  line.text("attribute", attribute_text(datagram)).hex("modifier", datagram.modifier);
  line.hex("status_code", datagram.status).hex("transaction", datagram.transaction);
  line.object("fields");
  for (const ManagementField& field : fields_of(datagram)) line.text(field.name, field.value);
  line.close().end();
  flush_if_full();
}

// A connection that leaves the table is written now, because finish() does not find it any more.
void JsonReport::forgotten(const Connection& connection, const Results& results) {
  if (!options().connections && !options().summary) return;
  write_connection_json(out(), connection, results);
  flush_if_full();
}

void JsonReport::finish(const Results& results, const Selection& selection) {
  if (options().summary) write_capture_json(out(), results);
  if (options().connections || options().summary) {
    for (const Connection& one : results.analysis.connections()) {
      if (!selection.shows(one, results.analysis)) continue;
      write_connection_json(out(), one, results);
      flush_if_full();
    }
  }
  if (results.times != nullptr) write_times_json(out(), *results.times, options().summary);
  if (options().summary) write_trace_json(out(), options().name, results);
  flush();
}

}  // namespace

std::unique_ptr<Report> json_report(const ReportOptions& options, Report::Write write) {
  return std::make_unique<JsonReport>(options, std::move(write));
}

}  // namespace weft::capture
