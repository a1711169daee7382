// The program `weft`: parses the command line and calls the command.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "cli/dissect.h"
#include "cli/doctor.h"
#include "cli/help.h"
#include "cli/run.h"
#include "cli/terminal.h"
#include "cli/top.h"
#include "cli/trace.h"

namespace weft::cli {
namespace {

// The exit status of wrong options, in all commands.
constexpr int misused = 2;

// `weft help` and `weft help TOPIC`.
struct HelpOptions {
  std::string topic;
};

// Of connections between processes of this host.
void add_host_options(CLI::App& run, RunOptions& options) {
  run.add_option("--same-host", options.same_host,
                 "Connections between processes of one user on this host: auto (without TCP where "
                 "that is possible), off, require or staged (WEFT_SAME_HOST)")
      ->type_name("MODE");
  run.add_option("--ptracer", options.ptracer,
                 "Processes of the user that may reach the memory of the program, where Yama asks "
                 "for that: peer (the first that connects), any or off (WEFT_PTRACER)")
      ->type_name("MODE");
  run.add_option("--shared-heap", options.shared_heap,
                 "Memory of the program that processes of the same user on this host may map: "
                 "aligned (page-aligned memory), off or all (large blocks as well) "
                 "(WEFT_SHARED_HEAP)")
      ->type_name("MODE");
}

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* run = app.add_subcommand(
      "run",
      "Run an unmodified program on the embedded device: weft run [OPTIONS] -- PROGRAM ARGS");
  run->footer("`weft help environment` lists the variables behind these options, and more.");
  // Parsing ends at the first word that is no option: the rest belongs to the program.
  run->prefix_command();
  run->add_option("--addr", options.address, "The device's only address (WEFT_ADDR)")
      ->type_name("ADDRESS");
  run->add_option("--capture", options.capture,
                  "Write the device's traffic to a pcapng file (WEFT_CAPTURE)")
      ->type_name("FILE");
  run->add_option("--stats", options.stats,
                  "Write the device's counters to a JSON file, or as text for Prometheus to "
                  "FILE.prom (WEFT_STATS)")
      ->type_name("FILE");
  run->add_option("--trace", options.trace,
                  "Write what becomes of each work request to a file for ui.perfetto.dev, see "
                  "`weft help trace` (WEFT_TRACE)")
      ->type_name("FILE");
  run->add_option("--fault", options.faults,
                  "Make calls, requests or the device fail, by rules as `weft help faults` "
                  "describes them, or @FILE; may be given several times (WEFT_FAULT)")
      ->type_name("RULES")
      ->allow_extra_args(false);
  run->add_option("--adapter", options.adapter,
                  "Show and grant less than the device has, such as max_qp=8,atomics=0; `weft help "
                  "faults` lists the names (WEFT_ADAPTER)")
      ->type_name("LIST");
  run->add_flag("--check", options.check,
                "Report where the program breaks the rules of verbs, see `weft help check`; =fatal "
                "ends it at the first report (WEFT_CHECK)")
      ->type_name("[=fatal]");
  run->add_option("--check-report", options.check_report,
                  "Write these reports to a JSON file as well (WEFT_CHECK_REPORT)")
      ->type_name("FILE");
  run->add_option("--check-status", options.check_status,
                  "The exit status if there are reports, instead of the program's own "
                  "(WEFT_CHECK_STATUS)")
      ->type_name("NUMBER");
  run->add_option("--check-suppressions", options.check_suppressions,
                  "What is not to be reported (WEFT_CHECK_SUPPRESSIONS)")
      ->type_name("FILE");
  run->add_option("--link", options.link,
                  "Slow the network down, such as latency=50us,rate=10gbit; `weft help faults` "
                  "lists the names (WEFT_LINK)")
      ->type_name("LIST");
  run->add_option("--personality", options.personality,
                  "What the device looks like: roce, iwarp or ib (WEFT_PERSONALITY)")
      ->type_name("NAME");
  run->add_option("--progress", options.progress,
                  "Who drives the device: auto, thread or manual (WEFT_PROGRESS)")
      ->type_name("MODE");
  run->add_option("--priority", options.priority,
                  "The nice value of the device's thread, -20 to 19 (WEFT_PRIORITY)")
      ->type_name("NUMBER");
  run->add_option("--port-offset", options.port_offset,
                  "Add this to every rdma_cm port; both sides need it (WEFT_PORT_OFFSET)")
      ->type_name("NUMBER");
  add_host_options(*run, options);
  run->add_flag("--no-ack", options.no_acknowledge,
                "Complete sends and writes when TCP has taken them (WEFT_ACK=0)");
  run->add_flag("--no-crc", options.no_crc, "Do not ask for CRCs (WEFT_CRC=0)");
  // A flag with a value that may be left out: an option would take the program's name as its value.
  run->add_flag("--sockets", options.sockets,
                "Put the program's TCP connections on RDMA streams; =fallback also connects to "
                "peers that speak plain TCP; =always leaves no connection within this host to the "
                "kernel (WEFT_SOCKETS)")
      ->type_name("[=MODE]");
  run->add_flag("-v,--verbose", options.verbose,
                "Print for each connection whether its data go through TCP (WEFT_VERBOSE=1)");
  run->add_flag("-q,--quiet", options.quiet, "Do not print which device serves the program");
  return run;
}

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options) {
  CLI::App* doctor =
      app.add_subcommand("doctor", "Check what this machine has and lacks, and test the device");
  doctor->footer("Exit status: 0 healthy, 1 there is a problem, 2 wrong options.");
  CLI::Option* peer = doctor
                          ->add_option("--peer", options.peer,
                                       "Also test against `weft doctor --serve` on this host")
                          ->type_name("HOST");
  // One process is only one of the two sides.
  CLI::Option* serve =
      doctor->add_flag("--serve", options.serve, "Be the other side of --peer, until interrupted")
          ->excludes(peer);
  // Port 0 is refused: it would be a free port, which the other side does not know.
  doctor->add_option("--port", options.port, "The port of --peer and --serve")
      ->type_name("NUMBER")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  doctor->add_flag("--json", options.json, "One JSON document instead of text")->excludes(serve);
  // An option that is ignored looks like one that works.
  doctor->callback([doctor, peer, serve] {
    const bool used = peer->count() > 0 || serve->count() > 0;
    if (used || doctor->get_option("--port")->count() == 0) return;
    throw CLI::ValidationError("--port", "needs --peer or --serve");
  });
  return doctor;
}

// The options that select what `weft dissect` shows. One that may be given several times takes one
// word each time: allow_extra_args(false). Otherwise CLI11 takes the files behind it as well.
void add_selection(CLI::App& dissect, DissectOptions& options) {
  dissect.add_option("--connection", options.connection, "Only this connection")
      ->type_name("NUMBER");
  dissect.add_option("--qp", options.queue_pair, "Only connections with this queue pair")
      ->type_name("NUMBER");
  dissect
      .add_option("--rkey", options.key,
                  "Only operations and RPCs on this memory, and findings about them")
      ->type_name("KEY");
  dissect
      .add_option(
          "--time", options.time,
          "Only operations and RPCs that began in this time, in seconds since the first frame: "
          "1.5..2; findings and connections with a frame in it")
      ->type_name("FROM..TO");
  dissect
      .add_option(
          "--opcode", options.opcode,
          "Only operations of this kind: send, write, read, fetch_add, compare_swap, atomic "
          "or immediate")
      ->type_name("KIND");
  dissect.add_option("--xid", options.xid, "Only RPCs with this XID, and findings about them")
      ->type_name("NUMBER");
  dissect
      .add_option("--filter", options.filter,
                  "Only what this expression selects, such as 'rpc.latency > 10ms && peer == "
                  "10.0.0.7'; `weft help filters` explains it")
      ->type_name("EXPRESSION");
  dissect
      .add_option(
          "--clock-offset", options.clock_offsets,
          "What the clock of one of several files is ahead, in seconds. Without this option "
          "the difference is measured where the files show it")
      ->type_name("FILE=SECONDS")
      ->allow_extra_args(false);
  dissect
      .add_option("--severity", options.severity,
                  "Only findings of this severity or a higher one: note, warning or error")
      ->type_name("LEVEL");
}

CLI::App* add_dissect(CLI::App& app, DissectOptions& options) {
  CLI::App* dissect = app.add_subcommand(
      "dissect", "Explain the RDMA traffic of capture files, or of an interface");
  dissect
      ->add_option("files", options.files,
                   "Captures (pcap, pcapng, snoop or ERF, also compressed with gzip, zstd, xz, "
                   "bzip2 or lz4; - is standard "
                   "input); several are joined to one trace")
      ->type_name("FILE");
  dissect
      ->add_option("--glob", options.globs,
                   "Also read the files that match this pattern, such as 'ring_*.pcapng': the "
                   "files of a rotating capture, of which the shell may not list all")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  dissect->add_flag("--operations", options.lists.operations, "List each operation");
  dissect->add_flag("--connections", options.lists.connections, "Show the connections only");
  dissect->add_flag("--rpc", options.lists.rpc, "List each RPC: calls joined with their replies");
  dissect->add_flag("--commands", options.lists.commands,
                    "List each command of NVMe, SMB, iSER and SRP with its status");
  dissect->add_flag("--management", options.lists.management,
                    "List each management datagram of InfiniBand, with the fields of the "
                    "connection manager's");
  dissect->add_flag("--findings", options.lists.findings,
                    "List what is wrong with the traffic or costs time");
  dissect
      ->add_option("--slowest", options.slowest,
                   "Also print where the time of the N slowest exchanges went")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  dissect->add_flag("--json", options.json, "Print one JSON object per line");
  dissect->add_flag("--csv", options.csv, "Print a table for spreadsheets");
  dissect->add_flag("--separate", options.separate, "Treat each file as a trace of its own");
  dissect->add_flag("--follow", options.follow, "Continue as the file grows, until Ctrl-C");
  dissect->add_option("--live", options.live, "Capture on an interface, until Ctrl-C")
      ->type_name("INTERFACE");
  dissect->add_option("--bpf", options.bpf, "What to capture, in the syntax of tcpdump")
      ->type_name("FILTER");
  dissect
      ->add_option("--extract", options.extract,
                   "Write messages, RPCs and NFS files into this new directory, with an index.json")
      ->type_name("DIR");
  dissect
      ->add_option("--html", options.html,
                   "Also write one page for a browser: timelines, throughput, latency, sequence "
                   "diagrams, findings")
      ->type_name("FILE");
  dissect
      ->add_option("--export-pcap", options.export_pcap,
                   "Also write the packets of what is selected to this pcapng file, with their "
                   "frame numbers as comments; reads the input twice")
      ->type_name("FILE");
  add_selection(*dissect, options);
  dissect->footer(
      "Options select what is shown; the analysis is always complete. Numbers are decimal, or "
      "hexadecimal after 0x.\n"
      "Exit status: 0; 1 if there are findings other than notes (with --severity: if there are "
      "any); 2 for wrong options, or input that cannot be read or was not read to the end.");
  return dissect;
}

CLI::App* add_trace(CLI::App& app, TraceOptions& options) {
  CLI::App* trace = app.add_subcommand(
      "trace", "Join the traces of `weft run --trace` of several processes, or show them");
  trace->add_option("files", options.files, "Traces; of both sides of a connection, for example")
      ->type_name("FILE")
      ->required();
  trace->add_option("-o,--output", options.output, "Write the joined trace to this file")
      ->type_name("FILE");
  trace
      ->add_option("--html", options.html,
                   "Write one page for a browser, which needs nothing else, to this file")
      ->type_name("FILE");
  trace->footer(
      "Without an option, the requests are counted. `weft help trace` explains the files.\n"
      "Exit status: 0; 2 for wrong options, and for files that cannot be read or written.");
  return trace;
}

// CLI::Range would accept "nan", which is neither below nor above the limits.
std::string check_interval(const std::string& text) {
  constexpr double shortest_s = 0.1;
  constexpr double longest_s = 3600;
  double seconds = 0;
  const bool number = CLI::detail::lexical_cast(text, seconds);
  if (number && seconds >= shortest_s && seconds <= longest_s) return {};
  return fmt::format("must be a number of seconds from {} to {}", shortest_s, longest_s);
}

CLI::App* add_top(CLI::App& app, TopOptions& options) {
  CLI::App* top = app.add_subcommand(
      "top", "Show what the devices of this user's processes do now: weft top [OPTIONS] [PID...]");
  top->add_option("pid", options.pids, "Only these processes")->type_name("NUMBER");
  top->add_flag("--once", options.once, "Look twice, an interval apart, print once, and end");
  top->add_flag("--json", options.json, "One JSON document in a line for each look");
  top->add_flag("--queue-pairs", options.queue_pairs, "Show each queue pair below its device");
  top->add_option("--interval", options.interval_s, "Seconds between two looks")
      ->type_name("SECONDS")
      ->check(check_interval)
      ->capture_default_str();
  top->add_option("--sort", options.sort,
                  "The column to sort by: ops, out, in, p50, p99, sq, rq, waits, pid or program")
      ->type_name("COLUMN")
      ->check(CLI::IsMember(top_sort_keys()))
      ->capture_default_str();
  top->footer(
      "`weft help top` explains the columns.\n"
      "Exit status: 0; 1 if the sockets of this machine cannot be listed, and with --once if no "
      "process that was named has a device; 2 for wrong options; 128 and its number if a signal "
      "ends --once.");
  return top;
}

CLI::App* add_help(CLI::App& app, HelpOptions& options) {
  CLI::App* help = app.add_subcommand("help", "Explain a command, or the environment variables");
  help->add_option("topic", options.topic,
                   "A command, `environment`, `faults`, `filters`, `check`, `trace` or `top`")
      ->type_name("");
  return help;
}

// Prints one sentence and the next step, but not the whole help, which would hide the sentence.
// `command`: the one that was called; empty: none.
int misuse(const std::string& sentence, const std::string& command) {
  print_error(sentence);
  write_error(command.empty()
                  ? "      `weft --help` lists the commands.\n"
                  : fmt::format("      `weft {} --help` lists its options.\n", command));
  return misused;
}

// What CLI11 has found wrong, in words of this program where those of CLI11 leave out what is
// expected. Options of other kinds than numbers have no conversion.
int misuse(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  const std::string command = commands.empty() ? "" : commands.front()->get_name();
  std::string sentence = error.what();
  const auto replace = [&sentence](std::string_view beginning, std::string_view by) {
    if (!sentence.starts_with(beginning)) return false;
    sentence.replace(0, beginning.size(), by);
    return true;
  };
  if (replace("Could not convert: ", "")) sentence += ": must be a number";
  for (const auto* beginning : {"The following argument was not expected: ",
                                "The following arguments were not expected: "}) {
    replace(beginning, command.empty() ? "no such command or option: "
                                       : command + ": no such option or argument: ");
  }
  return misuse(sentence, command);
}

// `overview`: the help of the whole program, taken before parsing; after it, CLI11 would return the
// help of the subcommand.
int show_help(const CLI::App& app, const std::string& overview, const HelpOptions& options) {
  if (options.topic.empty()) {
    fmt::print("{}", overview);
  } else if (options.topic == "environment") {
    fmt::print("{}", environment_help());
  } else if (options.topic == "faults") {
    fmt::print("{}", faults_help());
  } else if (options.topic == "filters") {
    fmt::print("{}", filters_help());
  } else if (options.topic == "check") {
    fmt::print("{}", check_help());
  } else if (options.topic == "trace") {
    fmt::print("{}", trace_help());
  } else if (options.topic == "top") {
    fmt::print("{}", top_help());
  } else if (options.topic == "run" || options.topic == "dissect" || options.topic == "doctor" ||
             options.topic == "help") {
    fmt::print("{}", app.get_subcommand(options.topic)->help());
  } else {
    return misuse(fmt::format("no help on '{}'", options.topic), "help");
  }
  return 0;
}

// `ours`: the number of arguments before the first "--". That "--" may belong to the program, if
// its name came before it.
int start_program(const CLI::App& command, RunOptions& options, int ours, int count,
                  char** arguments) {
  options.command = command.remaining();
  // CLI11 leaves unknown options to the program as well. Without this check, a misspelt option
  // would be taken for its name.
  if (!options.command.empty() && options.command.front().starts_with("-")) {
    return misuse(fmt::format("run: no option '{}'; put a program of that name after --",
                              options.command.front()),
                  "run");
  }
  // If there are words of the program already, the "--" behind them is one of its arguments.
  const int rest = options.command.empty() ? ours + 1 : ours;
  for (int i = rest; i < count; ++i) options.command.emplace_back(arguments[i]);
  if (options.command.empty())
    return misuse("run: which program? weft run [OPTIONS] -- PROGRAM ARGS", "run");
  return run(options);
}

// Adds the words behind "--" to the operands of the command, even if they begin with a dash (POSIX
// XBD 12.2, guideline 10). CLI11 would take them for arguments of the program if the command has
// operands already.
void add_operands(CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) return;
  const auto commands = app.get_subcommands();
  if (commands.empty()) throw CLI::ExtrasError("weft", words);
  for (CLI::Option* option : commands.front()->get_options()) {
    if (!option->get_positional()) continue;
    for (const std::string& word : words) option->add_result(word);
    return option->run_callback();
  }
  throw CLI::ExtrasError("weft", words);
}

int parse_and_do(int count, char** arguments) {
  CLI::App app("Weft: RDMA on any Linux machine.", "weft");
  app.set_version_flag("--version", "weft " WEFT_VERSION);
  app.footer("`weft help environment` lists the variables that change how the device behaves.");
  // None is allowed, so that the overview can be shown instead of an error of the parser.
  app.require_subcommand(0, 1);
  RunOptions run_options;
  DoctorOptions doctor_options;
  HelpOptions help_options;
  CLI::App* run_command = add_run(app, run_options);
  CLI::App* doctor_command = add_doctor(app, doctor_options);
  DissectOptions dissect_options;
  CLI::App* dissect_command = add_dissect(app, dissect_options);
  TraceOptions trace_options;
  CLI::App* trace_command = add_trace(app, trace_options);
  TopOptions top_options;
  CLI::App* top_command = add_top(app, top_options);
  CLI::App* help_command = add_help(app, help_options);
  const std::string overview = app.help();
  // CLI11 gets nothing behind "--", so that it does not take an argument of the program for its
  // own.
  const int ours =
      static_cast<int>(std::find(arguments, arguments + count, std::string_view("--")) - arguments);
  const std::vector<std::string> behind(arguments + std::min(ours + 1, count), arguments + count);
  if (!behind.empty()) trace_command->get_option("files")->required(false);
  try {
    app.parse(ours, arguments);
    if (!run_command->parsed()) add_operands(app, behind);
  } catch (const CLI::Success& request) {
    return app.exit(request);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return misuse(app, error);
  }
  if (run_command->parsed()) {
    return start_program(*run_command, run_options, ours, count, arguments);
  }
  if (doctor_command->parsed()) return doctor(doctor_options);
  if (dissect_command->parsed()) return dissect(dissect_options);
  if (trace_command->parsed()) return trace(trace_options);
  if (top_command->parsed()) return top(top_options);
  if (help_command->parsed()) return show_help(app, overview, help_options);
  // A call without a command is a mistake, so that the overview is not the output.
  write_error(overview);
  return misused;
}

}  // namespace
}  // namespace weft::cli

int main(int count, char** arguments) {
  try {
    // This precedes the first file that is opened, which would get one of the numbers.
    weft::cli::occupy_standard_descriptors();
    return weft::cli::finish_output(weft::cli::parse_and_do(count, arguments));
  } catch (const std::exception& error) {
    // A long text meets the error when it is printed, a short one when it is flushed.
    if (std::ferror(stdout) != 0) return weft::cli::finish_output(0);
    weft::cli::print_error(error.what());
    return 1;
  }
}
