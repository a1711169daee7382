// The text report: a summary, and lists if they are requested.
#include <string>

#include "capture/report/report.h"
#include "capture/text/units.h"
#include "weft/capture/rpc_text.hpp"

namespace weft::capture {
namespace {

const char* arrow_of(Side side) {
  return side == Side::a ? "→" : "←";
}

// In the order of Violation::Kind, which is the index.
constexpr const char* violation_words[violation_kinds] = {
    "wrong checksum",           "marker that points elsewhere",   "wrong version",
    "impossible header",        "message number out of order",    "message offset out of order",
    "answer without a request", "answer longer than its request", "wrong length"};

// Describes the framing of MPA in both directions.
std::string framing_text(const Connection& connection) {
  std::string text = connection.crc ? "CRC" : "no CRC";
  for (const Side side : {Side::a, Side::b}) {
    // A side receives the markers that it requested, so they are in the stream of the other side.
    const auto& receiver = side == Side::a ? connection.offer_b : connection.offer_a;
    if (receiver.markers) text += fmt::format(", markers {}", arrow_of(side));
  }
  return text;
}

std::string depths_text(const Connection::Offer& offer) {
  return fmt::format("IRD {} ORD {}", offer.ird, offer.ord);
}

// The columns of one kind of operation: direction, name, count, bytes and latencies.
constexpr const char* operation_line = "    {} {:<12} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10}\n";

class TextReport final : public Report {
 public:
  using Report::Report;

  void begin() override;
  void operation(const Operation& operation, const Analysis& analysis) override;
  void rpc(const Rpc& rpc, const Analysis& analysis) override;
  void command(const StorageCommand& command, const Analysis& analysis) override;
  void finding(const Finding& finding, const Analysis& /*analysis*/) override {
    write(finding, "");
  }
  void finding_so_far(const Finding& finding, const Analysis& /*analysis*/) override {
    write(finding, " so far");
  }
  void management(const ManagementDatagram& datagram, const Analysis& analysis) override;
  void forgotten(const Connection& connection, const Results& results) override;
  void finish(const Results& results, const Selection& selection) override;

 private:
  void write(const Finding& finding, const char* so_far);
  void title(const Analysis& analysis);
  void quality(const Results& results);
  void packets(const Analysis& analysis);
  void heading(const Connection& connection);
  void connection(const Connection& connection, const Results& results);
  void rpcs(const RpcCounts& counts);
  void procedures(const ExchangeTimes& times);
  void slowest(const Results& results);
  void handshake(const Connection& connection);
  void kinds(const ConnectionStatistics& statistics);
  void throughput(Side side, const SideStatistics& statistics);
  void troubles(Side side, const SideStatistics& statistics, const Analysis& analysis);
  [[nodiscard]] std::string bold(std::string_view text) const {
    return options().colours ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
  }
};

void TextReport::begin() {
  if (options().rpcs) {
    print("{:>5} {} {:<10} {:>14} {:>15} {:>9}  {}\n", "conn.", " ", "XID", "start s", "frames",
          "latency", "what");
  }
  if (options().commands) {
    print("{:>5} {} {:>18} {:>14} {:>15} {:>9}  {}\n", "conn.", " ", "id", "start s", "frames",
          "latency", "what");
  }
  if (!options().operations) return;
  print("{:>8} {:>5} {} {:<12} {:>10} {:>14} {:>17} {:>9}  {}\n", "number", "conn.", " ", "kind",
        "bytes", "start s", "frames", "latency", "what");
}

// Prints one line. The last column has only what is unusual or specific to the kind.
void TextReport::operation(const Operation& operation, const Analysis& analysis) {
  std::string what;
  const auto add = [&what](const std::string& words) {
    if (!what.empty()) what += ", ";
    what += words;
  };
  if (operation.is_request() || operation.kind == Operation::Kind::write) {
    add(fmt::format("{:#010x} at {:#x}", operation.key, operation.address));
  }
  if (operation.send_kind == SendKind::solicited ||
      operation.send_kind == SendKind::solicited_invalidate) {
    add("solicited");
  }
  if (operation.invalidated_key != 0) {
    add(fmt::format("invalidates {:#010x}", operation.invalidated_key));
  }
  if (operation.has_immediate) add(fmt::format("immediate {:#010x}", operation.immediate));
  if (operation.repeated) add("requested again");
  if (operation.not_ready > 0) {
    add(fmt::format("met {}", count_text(operation.not_ready, "RNR NAK")));
  }
  if (operation.outcome != Operation::Outcome::complete) add(to_string(operation.outcome));
  if (operation.missing_bytes > 0) add(fmt::format("{} B missing", operation.missing_bytes));
  if (operation.cut_bytes > 0) add(fmt::format("{} B cut", operation.cut_bytes));
  const std::int64_t latency = operation.latency_ns();
  const std::uint64_t bytes = operation.kind == Operation::Kind::read && operation.bytes == 0
                                  ? operation.requested_bytes
                                  : operation.bytes;
  print("{:>8} {:>5} {} {:<12} {:>10} {:>14} {:>17} {:>9}  {}\n", operation.number,
        shown_number(operation.connection), arrow_of(operation.side), to_string(operation.kind),
        bytes, seconds_text(operation.start.time_ns - analysis.totals().first_ns),
        operation.start.frame == operation.end.frame
            ? fmt::format("{}", operation.start.frame)
            : fmt::format("{}–{}", operation.start.frame, operation.end.frame),
        latency >= 0 ? duration_text(latency) : "", what);
  flush_if_full();
}

void TextReport::rpc(const Rpc& rpc, const Analysis& analysis) {
  const RpcMessage& first = rpc.call ? *rpc.call : *rpc.reply;
  const bool both = rpc.call && rpc.reply;
  std::string what = describe(rpc);
  if (const std::string detail = detail_text(rpc); !detail.empty()) what += ": " + detail;
  if (rpc.retransmissions > 0) {
    what += fmt::format(", {}", count_text(rpc.retransmissions, "retransmission"));
  }
  print("{:>5} {} {:#010x} {:>14} {:>15} {:>9}  {} → {}\n", shown_number(rpc.connection),
        arrow_of(rpc.caller), rpc.xid,
        seconds_text(first.first.time_ns - analysis.totals().first_ns),
        both ? fmt::format("{}–{}", first.first.frame, rpc.reply->first.frame)
             : fmt::format("{}", first.first.frame),
        both ? duration_text(rpc.latency_ns) : "", what, outcome_text(rpc));
  flush_if_full();
}

void TextReport::command(const StorageCommand& command, const Analysis& analysis) {
  const Stamp& first = first_stamp(command);
  std::string what = describe(command);
  if (const std::string detail = detail_text(command); !detail.empty()) what += ": " + detail;
  print("{:>5} {} {:>#18x} {:>14} {:>15} {:>9}  {} → {}\n", shown_number(command.connection),
        arrow_of(command.requester), command.id,
        seconds_text(first.time_ns - analysis.totals().first_ns),
        command.request && command.answer ? fmt::format("{}–{}", first.frame, command.answer->frame)
                                          : fmt::format("{}", first.frame),
        command.latency_ns >= 0 ? duration_text(command.latency_ns) : "", what,
        outcome_text(command));
  flush_if_full();
}

void TextReport::write(const Finding& finding, const char* so_far) {
  print("{} {} {}{}: {}", bold(fmt::format("[{}]", shown_number(finding.connection))),
        to_string(severity_of(finding)), finding.kind, so_far, finding.sentence);
  const char* before = finding.stamps.size() == 1 ? " (frame " : " (frames ";
  for (const Stamp& stamp : finding.stamps) {
    print("{}{}", before, stamp.frame);
    before = ", ";
  }
  print("{}\n", finding.stamps.empty() ? "" : ")");
  flush_if_full();
}

// Prints one line, and for messages of the connection manager their fields in further lines.
void TextReport::management(const ManagementDatagram& datagram, const Analysis& analysis) {
  constexpr std::size_t most_columns = 100;
  print("{:>7} {:>14}  {} → {}  {} {} {}", datagram.stamp.frame,
        seconds_text(datagram.stamp.time_ns - analysis.totals().first_ns),
        to_string(datagram.source), to_string(datagram.destination), class_text(datagram),
        method_text(datagram), attribute_text(datagram));
  if (datagram.modifier != 0) print(", modifier {:#x}", datagram.modifier);
  if (datagram.status != 0) print(", status {:#06x}", datagram.status);
  print("\n");
  std::string line;
  const auto flush_line = [&] {
    if (!line.empty()) print("        {}\n", line);
    line.clear();
  };
  for (const ManagementField& field : fields_of(datagram)) {
    const std::string words = fmt::format("{} {}", field.name, field.value);
    if (line.size() + words.size() > most_columns) flush_line();
    line += (line.empty() ? "" : ", ") + words;
  }
  flush_line();
  flush_if_full();
}

void TextReport::title(const Analysis& analysis) {
  const auto& totals = analysis.totals();
  print("{}: {}", bold(options().name), count_text(totals.frames, "frame"));
  if (totals.frames > 0) {
    print(", {} in {} from {}", bytes_text(totals.wire_bytes),
          duration_text(totals.last_ns - totals.first_ns), date_text(totals.first_ns));
  }
  print("\n");
}

// Prints first what the capture lacks, because everything after it depends on that.
void TextReport::quality(const Results& results) {
  const auto sentences = describe(results.quality);
  for (const std::string& sentence : sentences) print("  - {}\n", sentence);
  const auto names = [&](std::vector<PacketDecoder::Named> all, const char* what) {
    constexpr std::size_t shown = 8;
    std::uint64_t frames = 0;
    for (const auto& one : all) frames += one.packets;
    if (frames == 0) return;
    print("  - {} {}: ", count_text(frames, "frame"), what);
    for (std::size_t i = 0; i < std::min(all.size(), shown); ++i) {
      print("{}{} {}", i == 0 ? "" : ", ", all[i].packets, all[i].name);
    }
    print("{}\n", all.size() > shown ? ", and others" : "");
  };
  names(results.analysis.tunnels(), "in tunnels");
  names(results.analysis.other_protocols(), "of other protocols");
}

// Prints counts over all frames. Zero counts are left out, except those of the main line.
void TextReport::packets(const Analysis& analysis) {
  const auto& counts = analysis.packet_counts();
  // The table no longer has the connections that were forgotten, so their frames are added.
  std::uint64_t of_rdma = analysis.connections().forgotten_frames();
  for (const Connection& one : analysis.connections()) of_rdma += one.frames;
  print("{} of {}", count_text(of_rdma, "frame"),
        count_text(analysis.connections().size(), "RDMA connection"));
  const auto& infiniband = analysis.infiniband();
  if (infiniband.packets > 0) {
    print(", {} of InfiniBand or RoCE", count_text(infiniband.packets, "frame"));
  }
  print(", {} seen in all\n", count_text(analysis.tcp_connections(), "TCP connection"));
  const auto print_count = [&](std::uint64_t count, const char* what) {
    if (count > 0) print("{} {}\n", count_text(count, "frame"), what);
  };
  print_count(counts.cut_short, "cut so short that their headers are missing");
  print_count(counts.malformed, "with headers that contradict themselves");
  print_count(counts.unknown_link, "of a link layer that is not understood");
  print_count(infiniband.malformed, "of InfiniBand too short for their own headers");
  print_count(infiniband.cut_short, "of InfiniBand cut so short that their headers are missing");
  print_count(infiniband.unknown, "of InfiniBand with opcodes that are not understood");
  print_count(infiniband.bad_checksum, "of InfiniBand with a wrong invariant CRC");
  print_count(infiniband.congestion_notifications, "that notify of congestion");
  if (infiniband.dropped_requests > 0) {
    print("{} for Reads and atomics given up without the whole response: too many at a time\n",
          count_text(infiniband.dropped_requests, "request"));
  }
  if (const std::size_t forgotten = analysis.connections().forgotten(); forgotten > 0) {
    print("{} {} reported above, before the end: too many at a time\n",
          count_text(forgotten, "RDMA connection"), forgotten == 1 ? "is" : "are");
  }
  if (analysis.tcp_forgotten() > 0) {
    print("{} forgotten before the end: too many at a time\n",
          count_text(analysis.tcp_forgotten(), "TCP connection"));
  }
}

void TextReport::heading(const Connection& connection) {
  print("{} {} {} {} {}  {}\n", bold(fmt::format("[{}]", shown_number(connection.id))),
        to_string(connection.transport), endpoint_text(connection, Side::a), "⇄",
        endpoint_text(connection, Side::b), to_string(connection.end));
}

// Prints the parameters of the handshake, or that there was none in the capture.
void TextReport::handshake(const Connection& connection) {
  const auto& a = connection.offer_a;
  const auto& b = connection.offer_b;
  const bool iwarp = connection.transport == Transport::iwarp;
  if (!a.seen && !b.seen) {
    if (iwarp) print("    recognised in mid-stream, {}\n", framing_text(connection));
    return;
  }
  const auto& any = a.seen ? a : b;
  if (iwarp)
    print("    MPA revision {}, {}", any.revision, framing_text(connection));
  else
    print("    connection manager, MTU {}", connection.mtu_bytes);
  if (a.has_depths) print("; → asks for {}", depths_text(a));
  if (b.has_depths) print("; ← answers {}", depths_text(b));
  print("\n");
  for (const Side side : {Side::a, Side::b}) {
    const auto& offer = side == Side::a ? a : b;
    if (offer.private_data.empty()) continue;
    print("    {} {} of private data\n", arrow_of(side), bytes_text(offer.private_data.size()));
  }
  if (connection.control_words > 0) {
    print("    {} of two Weft devices\n", count_text(connection.control_words, "control word"));
  }
}

// Prints the table of operations by side and kind, with its header before the first row.
void TextReport::kinds(const ConnectionStatistics& statistics) {
  bool first = true;
  for (const Side side : {Side::a, Side::b}) {
    for (std::size_t i = 0; i < operation_kinds; ++i) {
      const KindStatistics& kind = statistics.of(side).kinds[i];
      if (kind.count == 0) continue;
      if (first) {
        print(operation_line, " ", "", "count", "bytes", "p50", "p90", "p99", "max");
        first = false;
      }
      const auto time = [&](double percent) {
        return kind.latency.count() > 0 ? duration_text(kind.latency.percentile(percent)) : "";
      };
      print(operation_line, arrow_of(side), to_string(static_cast<Operation::Kind>(i)), kind.count,
            bytes_text(kind.bytes), time(50), time(90), time(99), time(100));
      if (kind.not_complete > 0) print("        {} of them not complete\n", kind.not_complete);
    }
  }
}

// Prints the average and the largest throughput. One bucket only has no meaningful rate.
void TextReport::throughput(Side side, const SideStatistics& statistics) {
  const auto& series = statistics.carried;
  std::uint64_t bytes = 0;
  std::uint64_t most_bytes = 0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    bytes += series[i];
    most_bytes = std::max(most_bytes, series[i]);
  }
  if (bytes == 0 || series.size() < 2) return;
  const auto per_second = [](std::uint64_t amount, std::uint64_t time_ns) {
    constexpr double second_ns = 1e9;
    const double rate = static_cast<double>(amount) * second_ns / static_cast<double>(time_ns);
    return bytes_text(static_cast<std::uint64_t>(rate));
  };
  print("    {} {}/s on average, {}/s in the best {}\n", arrow_of(side),
        per_second(bytes, series.width_ns() * series.size()),
        per_second(most_bytes, series.width_ns()),
        duration_text(static_cast<std::int64_t>(series.width_ns())));
}

// Prints what went wrong on one side. Zero counts are left out.
void TextReport::troubles(Side side, const SideStatistics& statistics, const Analysis& analysis) {
  const char* arrow = arrow_of(side);
  if (statistics.repeats > 0) {
    const auto lost_ns = static_cast<std::int64_t>(statistics.repeating.lost_ns());
    const std::string packets = count_text(statistics.repeats, "packet");
    print("    {} {}{}\n", arrow,
          statistics.repeated_bytes == 0
              ? packets + " sent again"
              : fmt::format("{} sent again, in {}", bytes_text(statistics.repeated_bytes), packets),
          lost_ns > 0 ? fmt::format(", {} lost at most", duration_text(lost_ns)) : "");
  }
  if (statistics.lost_bytes > 0) {
    print("    {} {} not captured, or not to be understood without it, in {}\n", arrow,
          bytes_text(statistics.lost_bytes), count_text(statistics.gaps, "gap"));
  }
  if (statistics.lost_packets > 0) {
    print("    {} {} not captured\n", arrow, count_text(statistics.lost_packets, "packet"));
  }
  for (std::size_t i = 0; i < violation_kinds; ++i) {
    if (statistics.violations[i] > 0) {
      print("    {} {}: {}\n", arrow, violation_words[i], statistics.violations[i]);
    }
  }
  if (statistics.receiver_not_ready > 0) {
    print("    {} not ready to receive: {}, {} to wait\n", arrow,
          count_text(statistics.receiver_not_ready, "RNR NAK"),
          duration_text(static_cast<std::int64_t>(statistics.receiver_not_ready_ns)));
  }
  if (statistics.sequence_errors > 0) {
    print("    {} asked for repetition: {}\n", arrow,
          count_text(statistics.sequence_errors, "NAK"));
  }
  if (statistics.congestion_marked + statistics.congestion_notified > 0) {
    print("    {}", arrow);
    if (statistics.congestion_marked > 0) {
      print(" {} met congestion", count_text(statistics.congestion_marked, "packet"));
    }
    if (statistics.congestion_notified > 0) {
      print("{} {} of congestion", statistics.congestion_marked > 0 ? "," : "",
            count_text(statistics.congestion_notified, "notification"));
    }
    print("\n");
  }
  if (statistics.refusals > 0) {
    print("    {} {} (frame {}, at {} s)\n", arrow, refusal_text(statistics.last_refusal),
          statistics.last_refusal_at.frame,
          seconds_text(statistics.last_refusal_at.time_ns - analysis.totals().first_ns));
  }
}

void TextReport::rpcs(const RpcCounts& counts) {
  print("    {}", count_text(counts.calls, "RPC"));
  const auto print_count = [&](std::uint64_t count, const char* what) {
    if (count > 0) print(", {} {}", count, what);
  };
  print_count(counts.retransmissions, "sent again");
  print_count(counts.unanswered, "unanswered");
  print_count(counts.replies_without_call, "replies without a call");
  print_count(counts.errors, "answered by RDMA_ERROR");
  print_count(counts.malformed, "malformed");
  print("\n");
}

void TextReport::connection(const Connection& connection, const Results& results) {
  const Analysis& analysis = results.analysis;
  const ConnectionStatistics& statistics = results.statistics.of(connection.id);
  const std::int64_t origin = analysis.totals().first_ns;
  print("\n");
  heading(connection);
  if (connection.frames == 1) {
    print("    frame {}, at {} s\n", connection.first.frame,
          seconds_text(connection.first.time_ns - origin));
  } else {
    print("    frames {}–{}, {}, from {} to {} s\n", connection.first.frame, connection.last.frame,
          count_text(connection.frames, "frame"), seconds_text(connection.first.time_ns - origin),
          seconds_text(connection.last.time_ns - origin));
  }
  handshake(connection);
  kinds(statistics);
  for (const Side side : {Side::a, Side::b}) throughput(side, statistics.of(side));
  if (results.rpcs.recognised(connection.id)) rpcs(results.rpcs.counts(connection.id));
  if (const StorageTraffic* storage = results.storage.of(connection.id)) {
    print("    {}:", to_string(storage->protocol));
    const char* separator = "";
    for (const auto& [name, count] : storage->messages) {
      print("{} {} {}", separator, count, name);
      separator = ",";
    }
    print("\n");
  }
  troubles(Side::a, statistics.a, analysis);
  troubles(Side::b, statistics.b, analysis);
}

// Prints the procedures that cost the most time. The shares are of the time that the caller waited,
// before the calls and for the answers; the time of the client is that before the calls in which it
// did not wait.
void TextReport::procedures(const ExchangeTimes& times) {
  constexpr std::size_t shown = 16;
  constexpr const char* row =
      "  {:<52} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>6} {:>9} {:>8} {:>9} {:>9}";
  const auto all = times.procedures();
  if (all.empty()) return;
  print("\nWhere the time went:\n");
  print(row, "", "count", "p50", "p90", "p99", "max", "total", "server", "data", "not ready",
        "repeats", "held back", "client");
  print("\n");
  for (std::size_t i = 0; i < std::min(all.size(), shown); ++i) {
    const ProcedureTimes& one = *all[i];
    const TimeParts& parts = one.parts;
    const std::int64_t all_ns = one.total_ns + parts.held_ns();
    const auto share = [all_ns](std::int64_t ns) {
      const bool none = ns <= 0 || all_ns <= 0;
      return none ? std::string() : fmt::format("{} %", (ns * 100 + all_ns / 2) / all_ns);
    };
    std::string line = fmt::format(
        row, one.name, one.latency.count(), duration_text(one.latency.percentile(50)),
        duration_text(one.latency.percentile(90)), duration_text(one.latency.percentile(99)),
        duration_text(one.latency.max()), duration_text(one.total_ns), share(parts.server_ns),
        share(parts.transfer_ns), share(parts.receives_ns), share(parts.repeats_ns),
        share(parts.held_ns()), parts.client_ns > 0 ? duration_text(parts.client_ns) : "");
    line.resize(line.find_last_not_of(' ') + 1);
    print("{}\n", line);
  }
  if (all.size() > shown) print("  and {} with less time\n", all.size() - shown);
}

void TextReport::slowest(const Results& results) {
  const auto all = results.times->slowest();
  if (all.empty()) return;
  print("\nThe slowest:\n");
  for (const SlowExchange& one : all) {
    print("  {:>9} {} {} {}", duration_text(one.latency_ns),
          bold(fmt::format("[{}]", shown_number(one.connection))), arrow_of(one.side), one.name);
    if (one.xid) print(" (XID {:#010x})", *one.xid);
    print(" at {} s\n            {}\n",
          seconds_text(one.first.time_ns - results.analysis.totals().first_ns), one.story);
  }
}

void TextReport::forgotten(const Connection& one, const Results& results) {
  if (options().connections || options().summary) connection(one, results);
  flush_if_full();
}

void TextReport::finish(const Results& results, const Selection& selection) {
  if (options().summary) {
    title(results.analysis);
    quality(results);
    packets(results.analysis);
  }
  if (options().connections || options().summary) {
    for (const Connection& one : results.analysis.connections()) {
      if (selection.shows(one, results.analysis)) connection(one, results);
      flush_if_full();
    }
  }
  if (options().summary && results.times != nullptr) procedures(*results.times);
  if (results.times != nullptr) slowest(results);
  if (options().summary && results.findings > 0) {
    print("\n{}: --findings lists them\n", count_text(results.findings, "finding"));
  }
  flush();
}

}  // namespace

std::unique_ptr<Report> text_report(const ReportOptions& options, Report::Write write) {
  return std::make_unique<TextReport>(options, std::move(write));
}

}  // namespace weft::capture
