// CSV reports (RFC 4180): operations, RPCs, storage commands or findings if they are requested,
// otherwise connections.
#include <string>

#include "capture/report/report.h"
#include "weft/capture/rpc_text.hpp"

namespace weft::capture {
namespace {

// Quotes a field and doubles its quotation marks (RFC 4180 §2).
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char character : text) {
    if (character == '"') out += '"';
    out += character;
  }
  return out + '"';
}

class CsvReport final : public Report {
 public:
  using Report::Report;

  // Prints a header line for each list that is requested.
  void begin() override {
    if (options().rpcs) {
      print(
          "connection,caller,xid,program,version,procedure,name,status,call_frame,call_ns,"
          "reply_frame,reply_ns,latency_ns,retransmissions\r\n");
    }
    if (options().commands) {
      print(
          "connection,requester,protocol,id,name,detail,outcome,status,queue,unit,block,blocks,"
          "offset,bytes,command_frame,command_ns,answer_frame,answer_ns,latency_ns,"
          "transfer_ns\r\n");
    }
    if (options().management) {
      print(
          "frame,ns,source,destination,qp,class,method,attribute,modifier,status_code,fields\r\n");
    }
    if (options().findings) print("connection,kind,frame,sentence,ns,severity\r\n");
    if (of_connections()) {
      print(
          "connection,transport,address_a,number_a,address_b,number_b,end,frames,first_ns,last_ns,"
          "operations_a,bytes_a,operations_b,bytes_b,repeated_bytes,lost_bytes,violations\r\n");
    }
    if (!options().operations) return;
    print(
        "operation,connection,side,kind,outcome,bytes,missing_bytes,start_frame,start_ns,"
        "end_frame,end_ns,confirmed_frame,confirmed_ns,latency_ns,key,address,cut_bytes\r\n");
  }

  void operation(const Operation& operation, const Analysis& /*analysis*/) override {
    print("{},{},{},{},{},{},{},{},{},{},{},", operation.number, shown_number(operation.connection),
          operation.side == Side::a ? "a" : "b", to_string(operation.kind),
          to_string(operation.outcome), operation.bytes, operation.missing_bytes,
          operation.start.frame, operation.start.time_ns, operation.end.frame,
          operation.end.time_ns);
    if (operation.confirmed && !operation.is_request()) {
      print("{},{},", operation.confirmation.frame, operation.confirmation.time_ns);
    } else {
      print(",,");
    }
    if (operation.latency_ns() >= 0) print("{}", operation.latency_ns());
    if (operation.is_request() || operation.kind == Operation::Kind::write) {
      print(",{:#x},{:#x}", operation.key, operation.address);
    } else {
      // Empty fields keep the columns in their places.
      print(",,");
    }
    print(",{}\r\n", operation.cut_bytes);  // RFC 4180 §2 ends each record with CRLF
    flush_if_full();
  }

  void rpc(const Rpc& rpc, const Analysis& /*analysis*/) override {
    print("{},{},{:#010x},", shown_number(rpc.connection), rpc.caller == Side::a ? "a" : "b",
          rpc.xid);
    if (rpc.has_header)
      print("{},{},{},", rpc.program, rpc.version, rpc.procedure);
    else
      print(",,,");
    print("{},{},", quoted(describe(rpc)), quoted(outcome_text(rpc)));
    for (const auto* message : {&rpc.call, &rpc.reply}) {
      if (*message)
        print("{},{},", (*message)->first.frame, (*message)->first.time_ns);
      else
        print(",,");
    }
    if (rpc.call && rpc.reply) print("{}", rpc.latency_ns);
    print(",{}\r\n", rpc.retransmissions);
    flush_if_full();
  }

  void command(const StorageCommand& command, const Analysis& /*analysis*/) override {
    print("{},{},{},{:#x},{},{},{},{},", shown_number(command.connection),
          command.requester == Side::a ? "a" : "b", to_string(command.protocol), command.id,
          quoted(describe(command)), quoted(detail_text(command)), to_string(command.outcome),
          quoted(outcome_text(command)));
    const auto number = [this](const auto& value) {
      if (value) print("{}", *value);
      print(",");
    };
    number(command.queue);
    number(command.unit);
    number(command.block);
    number(command.blocks);
    number(command.offset);
    print("{},", command.bytes);
    for (const auto* stamp : {&command.request, &command.answer}) {
      if (*stamp)
        print("{},{},", (*stamp)->frame, (*stamp)->time_ns);
      else
        print(",,");
    }
    if (command.latency_ns >= 0) print("{}", command.latency_ns);
    print(",{}\r\n", command.transfer_ns);
    flush_if_full();
  }

  void finding(const Finding& finding, const Analysis& /*analysis*/) override {
    print("{},{},", shown_number(finding.connection), finding.kind);
    if (!finding.stamps.empty()) print("{}", finding.stamps.front().frame);
    print(",{},", quoted(finding.sentence));
    if (!finding.stamps.empty()) print("{}", finding.stamps.front().time_ns);
    print(",{}\r\n", to_string(severity_of(finding)));
    flush_if_full();
  }

  void management(const ManagementDatagram& datagram, const Analysis& /*analysis*/) override {
    std::string fields;
    for (const ManagementField& field : fields_of(datagram)) {
      fields += fmt::format("{}{}={}", fields.empty() ? "" : "; ", field.name, field.value);
    }
    print("{},{},{},{},{},{},{},{},{:#x},{:#x},{}\r\n", datagram.stamp.frame,
          datagram.stamp.time_ns, to_string(datagram.source), to_string(datagram.destination),
          datagram.queue_pair, quoted(class_text(datagram)), quoted(method_text(datagram)),
          quoted(attribute_text(datagram)), datagram.modifier, datagram.status, quoted(fields));
    flush_if_full();
  }

  // A connection that leaves the table is printed now, because finish() does not find it any more.
  void forgotten(const Connection& one, const Results& results) override {
    if (of_connections()) connection(one, results.statistics.of(one.id));
  }

  void finish(const Results& results, const Selection& selection) override {
    if (of_connections()) {
      for (const Connection& one : results.analysis.connections()) {
        if (selection.shows(one, results.analysis)) connection(one, results.statistics.of(one.id));
      }
    }
    flush();
  }

 private:
  [[nodiscard]] bool of_connections() const {
    return !options().operations && !options().rpcs && !options().commands && !options().findings &&
           !options().management;
  }
  // Prints the sums of one connection; operations of all kinds are added up.
  void connection(const Connection& one, const ConnectionStatistics& statistics) {
    print("{},{},{},{},{},{},{},{},{},{}", shown_number(one.id), to_string(one.transport),
          to_string(one.a.address), one.a.number, to_string(one.b.address), one.b.number,
          to_string(one.end), one.frames, one.first.time_ns, one.last.time_ns);
    for (const Side side : {Side::a, Side::b}) {
      std::uint64_t count = 0;
      std::uint64_t bytes = 0;
      for (const auto& kind : statistics.of(side).kinds) {
        count += kind.count;
        bytes += kind.bytes;
      }
      print(",{},{}", count, bytes);
    }
    print(",{},{},{}\r\n", statistics.a.repeated_bytes + statistics.b.repeated_bytes,
          statistics.a.lost_bytes + statistics.b.lost_bytes,
          statistics.a.all_violations() + statistics.b.all_violations());
    flush_if_full();
  }
};

}  // namespace

std::unique_ptr<Report> csv_report(const ReportOptions& options, Report::Write write) {
  return std::make_unique<CsvReport>(options, std::move(write));
}

}  // namespace weft::capture
