#include "cli/help.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>

#include "capture/filter/filter_fields.h"
#include "check/catalog.h"
#include "cli/terminal.h"
#include "faults/adapter.h"
#include "faults/link.h"
#include "faults/names.h"
#include "provider/environment.h"

namespace weft::cli {

// The text is made from the table by which the values are checked, so that the two cannot differ.
std::string environment_help() {
  constexpr std::size_t indent = 6;
  constexpr std::size_t columns = 80;
  std::string text = wrapped(
      "These variables change how the embedded device behaves. They are read when a program first "
      "uses the device.",
      0, columns);
  for (const provider::Variable& variable : provider::variables()) {
    text += fmt::format("\n  {}\n", bold(variable.name, STDOUT_FILENO));
    text += wrapped(variable.meaning, indent, columns);
    text += wrapped(fmt::format("Values: {}. Default: {}.", variable.allowed, variable.standard),
                    indent, columns);
  }
  return text;
}

namespace {

constexpr std::size_t columns = 80;
constexpr std::size_t indent = 6;

std::string heading(std::string_view text) {
  return fmt::format("\n{}\n", bold(text, STDOUT_FILENO));
}

std::string entry(std::string_view name, std::string_view meaning) {
  return fmt::format("  {}\n", bold(name, STDOUT_FILENO)) + wrapped(meaning, indent, columns);
}

// All names in the help on faults come from the tables of the parser.
std::string adapter_help() {
  std::string text = heading("A smaller adapter");
  text += wrapped(
      "`weft run --adapter LIST` and WEFT_ADAPTER make the device show and grant less than it has, "
      "so that a program meets the limits of other adapters. LIST is NAME=VALUE, separated by "
      "commas. Without a value here, the device grants the largest one. Objects are counted for "
      "each process. WEFT_STATS lists for each name the limit, the objects that exist and the "
      "requests that were refused.",
      0, columns);
  text += "\n  max_qp=8,max_cq=4,max_sge=2,max_inline=0,atomics=0\n\n";
  for (const faults::CapabilityName& name : faults::capability_names()) {
    text += entry(name.name, fmt::format("From {} to {}. {}", name.least, name.most, name.meaning));
  }
  return text;
}

std::string link_help() {
  std::string text = heading("A slower network");
  text += wrapped(
      "`weft run --link LIST` and WEFT_LINK delay what the device sends and receives, over TCP and "
      "as datagrams. Where both sides have a link, their delays add up. Connecting is not delayed, "
      "and the end of a connection is not either: it sends at once what is still on the way. All "
      "connections stay on TCP. Each run prints its seed on stderr. WEFT_STATS has the values, the "
      "seed, the delayed bytes, the stalls and the lost datagrams.",
      0, columns);
  text += "\n  latency=50us,jitter=5us,rate=10gbit,loss-stall=0.1%\n\n";
  for (const faults::LinkName& name : faults::link_names()) text += entry(name.name, name.meaning);
  return text;
}

std::string failure_help() {
  std::string text = heading("Actions of connections");
  for (const faults::FailureName& failure : faults::failure_names()) {
    std::string points;
    for (const faults::Point point : failure.points) {
      points += fmt::format("{}{}", points.empty() ? "" : ", ", faults::name_of(point));
    }
    text += entry(faults::form_of(failure), fmt::format("At {}. {}", points, failure.meaning));
  }
  std::string reasons;
  for (const faults::ValueName& reason : faults::reason_names()) {
    reasons += fmt::format("{}{} ({})", reasons.empty() ? "" : ", ", reason.name, reason.value);
  }
  return text + entry("REASON", reasons + ", another number, or an error.");
}

}  // namespace

std::string faults_help() {
  const auto values = [](faults::ActionKind kind) {
    std::string list;
    for (const faults::ValueName& value : faults::value_names(kind)) {
      list += fmt::format("{}{}", list.empty() ? "" : ", ", value.name);
    }
    return wrapped(list + ".", indent, columns);
  };
  std::string text = wrapped(
      "`weft run --fault RULES` and WEFT_FAULT make the device fail on purpose. Rules are "
      "separated "
      "by semicolons or line ends, and # begins a comment. @FILE stands for the rules in a file.",
      0, columns);
  text += "\n  ACTION at POINT [CONDITION...]\n  seed=NUMBER\n";
  text += "\n  ENOMEM at create-qp nth=2\n";
  text += "  REM_ACCESS_ERR at write nth=1000 process=ib_write_bw\n";
  text += "  RNR:20ms at arrival every=100 side=server\n";
  text += "  RETRY_EXC_ERR at request p=0.001 after=2s peer=192.0.2.7\n";
  text += "  REJECT:CONSUMER_DEFINED at connect times=2\n";
  text += "  PORT_ERR at device after=1s; PORT_ACTIVE at device after=3s\n";
  text += heading("Points");
  for (const faults::PointName& point : faults::point_names()) {
    text += entry(point.name, std::string(point.meaning) + ".");
  }
  text += heading("Actions of calls: the error that they return");
  text += values(faults::ActionKind::call_error);
  text += heading("Actions of requests: the status of their completion");
  text += values(faults::ActionKind::request_status);
  text += wrapped(
      "The queue pair goes to the error state, as with any such error, and what was posted behind "
      "the request is flushed. Where a Write, Read or atomic fails with a status that the peer "
      "reports (REM_...), the peer's queue pair fails as well.",
      indent, columns);
  text += heading("Actions of the device: the asynchronous event");
  text += values(faults::ActionKind::device_event);
  text += wrapped(
      "After PORT_ERR ibv_query_port shows the port as down, until PORT_ACTIVE. "
      "Connections are not affected.",
      indent, columns);
  text += failure_help();
  text += heading("Conditions");
  for (const faults::ConditionName& condition : faults::condition_names()) {
    text += entry(condition.name, condition.meaning);
  }
  text += "\n";
  text += wrapped(
      "A rule without nth=, every= and p= applies each time. Where several rules apply at once, "
      "the "
      "first one counts. Each run prints its seed on stderr; the same seed and the same sequence "
      "of "
      "calls give the same faults. WEFT_STATS lists how often each rule applied, and "
      "WEFT_VERBOSE=1 "
      "prints each fault.",
      0, columns);
  return text + adapter_help() + link_help();
}

namespace {

std::string filter_syntax() {
  std::string text = wrapped(
      "`weft dissect --filter EXPRESSION` selects what is shown and extracted: operations, RPCs, "
      "findings, and the connections that match or of which something was selected. The exit "
      "status follows the selected findings.",
      0, columns);
  text += "\n  rpc.latency > 10ms && rpc.procedure == WRITE && peer == 10.0.0.7\n";
  text += "  operation.kind in {write, read} && operation.bytes >= 64KiB\n";
  text += "  !(peer == 10.0.0.0/8) || finding.severity >= warning\n";
  text += heading("Expressions");
  text += entry("FIELD == VALUE, !=, <, <=, >, >=",
                "A comparison with a field that the record does not have is false. Of several "
                "values one must fit; with != none may be equal.");
  text += entry("FIELD contains TEXT", "The text is a part of the value.");
  text += entry("FIELD in {VALUE, VALUE}", "One of the values is equal.");
  text += entry("FIELD", "The record has the field.");
  text += entry("!, &&, ||, parentheses", "Also not, and, or. They bind in this order.");
  text += heading("Values");
  text += entry("numbers", "123, 0x7b, or with a unit: B, kB, MB, GB, KiB, MiB, GiB.");
  text += entry("times", "With a unit: ns, us, ms, s or min, such as 1.5ms.");
  text += entry("addresses", "10.0.0.7, 10.0.0.0/8, fe80::1, fe80::/10 or \"LID 7\".");
  text += entry("texts",
                "In single or double quotes, which a plain word does not need. Letters of "
                "either case are equal.");
  return text;
}

}  // namespace

std::string filters_help() {
  std::string text = filter_syntax();
  text += heading("Fields, with the records that have them");
  for (const capture::FilterField& field : capture::filter_fields) {
    std::string meaning = fmt::format("{}. Of {}.", field.meaning, field.of);
    meaning[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(meaning[0])));
    if (!field.words.empty()) meaning += fmt::format(" One of: {}.", field.words);
    text += entry(field.name, meaning);
  }
  text += "\n";
  return text + wrapped("Messages are those of --extract: their latency and outcome are not known.",
                        0, columns);
}

std::string check_help() {
  std::string text = wrapped(
      "`weft run --check` and WEFT_CHECK report on stderr where an unmodified program breaks the "
      "rules of verbs, each place once: what happened, the stacks of where it went wrong and of "
      "where the request or the object came from, the rule, and what an adapter does. The program "
      "runs on.",
      0, columns);
  text += heading("Checks");
  for (const check::RuleText& rule : check::rules()) {
    text += entry(rule.name, fmt::format("Reported: {}. {}", rule.title, rule.source));
  }
  text += wrapped(
      "early-access and polled-write watch samples of the program's memory, by the debug registers "
      "of the processor: they do not find each case. `weft doctor` says whether they work here.",
      indent, columns);
  text += heading("Suppressions: --check-suppressions FILE");
  text += wrapped(
      "Each line is CHECK or CHECK:PATTERN, and # begins a comment. CHECK is one of the names "
      "above, or * for each. The pattern is a shell pattern for a function, source file, program "
      "or library of any frame in the report's stacks.",
      indent, columns);
  text += heading("Exit status");
  text += wrapped(
      "That of the program, unless --check-status names another one for programs with reports. "
      "With --check=fatal the first report ends the program, with 66 if no status is named.",
      indent, columns);
  return text;
}

std::string top_help() {
  std::string text = wrapped(
      "`weft top` shows the processes of this user that have a Weft device, and what they do now. "
      "They need no option and no variable for that.",
      0, columns);
  text += heading("Columns");
  text += entry("QP",
                "Queue pairs: with a connection, and all. Those that a thread keeps locked during "
                "the look are counted behind WAITS; the rates are those of the others then.");
  text +=
      entry("OPS/s",
            "Sends, Writes, Reads and atomics that the program posts in a second. What peers do "
            "with its memory is not counted here.");
  text += entry("OUT B/s, IN B/s",
                "Bytes in a second: those of the program's requests and of its peers' Reads and "
                "Writes.");
  text += entry("p50, p99",
                "Latency of the signaled requests since the last look, from post to completion, "
                "within 6 %: half of them, and 99 of 100, took no longer. JSON has p999 as well. "
                "Latencies are taken only while `weft top` runs.");
  text +=
      entry("SQ, RQ, CQ",
            "Send and receive requests whose completions are not polled, and the sizes of the "
            "queues; a shared receive queue counts for each of its queue pairs. Completions that "
            "are not polled.");
  text += entry("WAITS",
                "Causes, with their part of the time; more than 100% where several queue pairs "
                "wait. `now`: a wait that has begun and is not over. "
                "peer: the peer has no receive, and holds no more messages. "
                "receive: a message of the peer finds no receive here. "
                "tcp: TCP has no room for more. "
                "connection: requests are posted, and the peer is not connected.");
  text += heading("Keys");
  text += wrapped("q quits, s sorts by the next column, p shows or hides queue pairs.", indent,
                  columns);
  text += heading("How it works");
  text += wrapped(
      "Each device listens on a Unix socket in the abstract namespace, weft-top/PID/RANDOM, and "
      "answers processes of the same user only. A process that is stopped, or whose device has no "
      "thread yet because it has no connection, does not answer, and is listed with the reason. "
      "Processes of other network namespaces (containers) are not seen.",
      indent, columns);
  return text;
}

std::string trace_help() {
  std::string text = wrapped(
      "`weft run --trace FILE` and WEFT_TRACE write what becomes of each work request of a program "
      "to a JSON file that ui.perfetto.dev and chrome://tracing open.",
      0, columns);
  text += heading("In the file");
  text += entry("queue pair NUMBER send, receive",
                "One span for each request, from post to poll of its completion. The operation and "
                "its size lie inside, from post to completion, with the mark `wire` where TCP, UDP "
                "or the copy on the same host has taken the last byte. An unsignaled request ends "
                "with the completion that covers it. The arguments have wr_id and status. Receives "
                "of a shared queue begin with their completion.");
  text += entry("queue pair NUMBER waits",
                "Spans with their cause: no room in TCP, the peer cannot hold more messages, or no "
                "receive is posted for a message of the peer. Where a connection on one host has "
                "left TCP: the peer has no receive, or there is no room in its inbox.");
  text += entry("threads",
                "The calls of rdma_cm, ibv_modify_qp, and waits for events; the posts; where "
                "messages of the peer were placed, with an arrow from their post if the traces of "
                "both sides are joined. One-sided operations on the same host and datagrams have "
                "no arrow. Faults (--fault) and findings (--check) are marks.");
  text += heading("Both sides: weft trace A B -o JOINED");
  text += wrapped(
      "Joins the traces of several processes, puts them on one clock, and adds the mark `placed` "
      "to requests: when the peer had the data. Processes of one running kernel share the clock. "
      "Between hosts the difference is measured by messages in both directions, if there are any; "
      "else the wall clocks have to agree. `weft trace FILE --html PAGE` writes one page for a "
      "browser that needs no network.",
      indent, columns);
  text += heading("The file itself");
  text += wrapped(
      "It is complete after each event, also if the program ends by _exit or a signal; until the "
      "exit, spaces may follow the JSON text. Beyond 256 MiB events are only counted, as `dropped` "
      "in otherData. A second process at the same time writes FILE.PID. Times are those of "
      "CLOCK_MONOTONIC in microseconds.",
      indent, columns);
  return text;
}

}  // namespace weft::cli
