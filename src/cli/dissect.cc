#include "cli/dissect.h"

#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "capture/report/report.h"
#include "capture/text/units.h"
#include "cli/dissect_arguments.h"
#include "cli/dissect_output.h"
#include "cli/live_view.h"
#include "cli/ordered_output.h"
#include "cli/progress.h"
#include "cli/standard_output.h"
#include "cli/terminal.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/packet_source.hpp"

namespace weft::cli {
namespace {

constexpr int exit_ok = 0;
constexpr int exit_findings = 1;
constexpr int exit_unusable = 2;

// --- Signals -------------------------------------------------------------------------------------

// The first Ctrl-C ends reading, and the summary is printed. The second one ends the program.
std::atomic<bool> stop_requested{false};

// Runs as a signal handler: it does only what is async-signal-safe.
void request_stop(int signal) {
  stop_requested = true;
  std::signal(signal, SIG_DFL);
}

class StopOnSignal {
 public:
  StopOnSignal() {
    struct sigaction action {};
    action.sa_handler = &request_stop;  // without SA_RESTART, so that a read is interrupted
    for (std::size_t i = 0; i < 2; ++i) sigaction(signals[i], &action, &before_[i]);
  }
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal() {
    for (std::size_t i = 0; i < 2; ++i) sigaction(signals[i], &before_[i], nullptr);
  }

 private:
  static constexpr int signals[2] = {SIGINT, SIGTERM};
  struct sigaction before_[2] = {};
};

// --- Reading -------------------------------------------------------------------------------------

// Returns the files with the corrections of their clocks: those that were given, otherwise those
// that can be measured, which are then in `clocks`.
std::vector<capture::CaptureFile> corrected_files(const DissectOptions& options,
                                                  const std::vector<std::string>& paths,
                                                  std::vector<capture::ClockDifference>& clocks) {
  std::vector<capture::CaptureFile> files;
  for (const std::string& path : paths) files.push_back({path});
  if (options.clock_offsets.empty()) {
    clocks = capture::measure_clocks(files, &stop_requested);
    return files;
  }
  for (const std::string_view offset : options.clock_offsets) {
    // The last one, because the name of a file may have others.
    const std::size_t equals = offset.rfind('=');
    const auto file =
        std::ranges::find(files, offset.substr(0, equals), &capture::CaptureFile::path);
    if (equals == std::string_view::npos || file == files.end()) {
      throw WrongOption(fmt::format(
          "--clock-offset: '{}' is not FILE=SECONDS, where FILE is one of the files", offset));
    }
    file->clock_ahead_ns = parse_seconds("--clock-offset", offset.substr(equals + 1)).value_or(0);
  }
  return files;
}

// Waits until a file that is followed has as many bytes as the shortest header of a capture: the
// program that writes it may not have begun yet.
void wait_for_header(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr std::uintmax_t header_bytes = 24;  // of pcap
  constexpr int moment_ms = 100;
  std::error_code error;
  while (!stop_requested && fs::is_regular_file(path, error) &&
         fs::file_size(path, error) < header_bytes) {
    (void)::poll(nullptr, 0, moment_ms);
  }
}

std::unique_ptr<capture::PacketSource> open(const DissectOptions& options,
                                            const std::vector<std::string>& files,
                                            std::vector<capture::ClockDifference>& clocks) {
  if (!options.live.empty()) return capture::capture_live(options.live, options.bpf);
  if (options.follow) wait_for_header(files[0]);
  // One file needs no merge, and is the only kind that can be followed.
  if (files.size() == 1 && options.clock_offsets.empty()) {
    return capture::open_capture(files[0], &stop_requested);
  }
  return capture::merge_captures(corrected_files(options, files, clocks), &stop_requested);
}

// std::thread::hardware_concurrency() counts processors that this process may not use.
bool has_second_processor() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  // EINVAL: the machine has more processors than the set has room for.
  return sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) > 1;
}

// A second processor reads and decompresses files. The read of a pipe or a terminal would not end
// at Ctrl-C in another thread, and an endless source has no end.
bool reads_ahead(const DissectOptions& options, const std::vector<std::string>& files) {
  namespace fs = std::filesystem;
  if (!options.live.empty() || options.follow || !has_second_processor()) return false;
  std::error_code ignored;
  return std::ranges::all_of(files, [&](const std::string& file) {
    return file != "-" && fs::is_regular_file(file, ignored);
  });
}

// Waits for the next packet, at most 100 ms.
void wait_for(const capture::PacketSource& source) {
  // A signal that comes just before poll(2) does not interrupt it, but is noticed after this time.
  constexpr int moment_ms = 100;
  pollfd descriptor{source.descriptor(), POLLIN, 0};
  (void)::poll(&descriptor, 1, moment_ms);  // a negative descriptor only waits
}

// Reads until the end of the source. An endless source (live, --follow) is read until Ctrl-C, and
// its output is flushed whenever it has no packet. Returns false if Ctrl-C came before the end.
bool read_all(capture::PacketSource& source, bool endless, capture::Analysis& analysis,
              capture::Report& report, StandardOutput& out, LiveView& view, Progress& progress) {
  capture::RawPacket packet;
  while (!stop_requested) {
    if (source.next(packet)) {
      analysis.add(packet);
      progress.update(source.bytes_read(), source.bytes_in_all());
      view.on_packet();
      continue;
    }
    if (stop_requested) break;  // the source may have stopped in the middle
    if (!endless || !source.problem().empty()) return true;
    // All that is known is shown before the wait, because the next packet may take long.
    view.on_pause();
    report.flush();
    out.flush();
    wait_for(source);
  }
  // Ctrl-C is the usual end of an endless source, and ends another one too early.
  return endless;
}

capture::ReportOptions report_options(const DissectOptions& options, const std::string& name) {
  capture::ReportOptions wanted;
  wanted.operations = options.lists.operations;
  wanted.connections = options.lists.connections;
  wanted.rpcs = options.lists.rpc;
  wanted.commands = options.lists.commands;
  wanted.findings = options.lists.findings;
  wanted.management = options.lists.management;
  // The summary is what remains if no list is selected.
  wanted.summary = options.lists.count() == 0;
  wanted.slowest = options.slowest;
  wanted.colours = is_coloured(STDOUT_FILENO);
  wanted.name = name;
  return wanted;
}

// CSV has no place for what is not final. A summary on a terminal has an overview until it comes.
LiveView::Form live_form(const DissectOptions& options) {
  using Form = LiveView::Form;
  const bool endless = options.follow || !options.live.empty();
  const bool summary = options.lists.count() == 0;
  if (!endless || options.csv || (!summary && !options.lists.findings)) return Form::nothing;
  if (!summary) return Form::findings;
  if (options.json) return Form::with_json;
  return isatty(STDOUT_FILENO) != 0 ? Form::with_overview : Form::with_lines;
}

// `part` is nullptr if nothing else prints at the same time.
std::unique_ptr<capture::Report> make_report(const DissectOptions& options,
                                             const capture::ReportOptions& wanted,
                                             StandardOutput& out, OrderedOutput::Part* part) {
  capture::Report::Write write = [&out](std::string_view text) { out.write(text); };
  if (part != nullptr) write = [part](std::string_view text) { part->write(text); };
  if (options.json) return capture::json_report(wanted, std::move(write));
  if (options.csv) return capture::csv_report(wanted, std::move(write));
  return capture::text_report(wanted, std::move(write));
}

// A file that is written at the end. It is opened at the start, so that a wrong path is reported
// before hours of a live capture.
class OutputFile {
 public:
  // The mode e makes the descriptor close-on-exec (fopen(3)).
  explicit OutputFile(const std::string& path)
      : path_(path), file_(std::fopen(path.c_str(), "we")) {
    if (file_ == nullptr) fail();
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (file_ != nullptr) std::fclose(file_);
  }

  void write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail();
  }
  // The destructor is too late for this: fclose(3) writes the rest, and a full disk is reported by
  // it.
  void close() {
    if (std::fclose(std::exchange(file_, nullptr)) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const { throw std::system_error(errno, std::system_category(), path_); }

  std::string path_;
  std::FILE* file_;
};

// Any byte but a slash may be in the name of a file.
std::string name_of(const DissectOptions& options, const std::vector<std::string>& files) {
  const std::string name = capture::printable(options.live.empty() ? files[0] : options.live);
  return files.size() < 2 ? name : fmt::format("{} and {} more", name, files.size() - 1);
}

std::string stopped_text(const std::string& name, const capture::PacketSource& source) {
  const std::uint64_t all = source.bytes_in_all();
  // The size of a pipe is unknown.
  if (all == 0) return fmt::format("{}: stopped before the end", name);
  return fmt::format("{}: stopped before the end; {} % of it was read", name,
                     source.bytes_read() * 100 / all);
}

// Reads the files again, also after Ctrl-C: what was read is exported. Returns false if another
// Ctrl-C came before its end.
bool export_packets(const DissectOptions& options, const std::vector<std::string>& files,
                    capture::PacketExport& packets, OutputFile& file) {
  const bool stopped = stop_requested.exchange(false);
  std::vector<capture::ClockDifference> clocks;
  const auto source = open(options, files, clocks);
  const std::uint64_t written = packets.write(
      *source, [&file](std::string_view bytes) { file.write(bytes); },
      [] { return stop_requested.load(); });
  file.close();
  print_notice(
      fmt::format("{}: {} written", options.export_pcap, capture::count_text(written, "packet")));
  if (packets.left_out() > 0) {
    print_notice(fmt::format("{}: {} left out: too many", options.export_pcap,
                             capture::count_text(packets.left_out(), "connection")));
  }
  return !stop_requested.exchange(stop_requested || stopped);
}

// Analyzes one trace. The output files are opened before the first packet is read. `part` is
// nullptr if no other trace is analyzed at the same time.
int dissect_one(const DissectOptions& options, const capture::Selection& selection,
                const std::vector<std::string>& files, StandardOutput& out,
                OrderedOutput::Part* part = nullptr) {
  const std::string name = name_of(options, files);
  std::vector<capture::ClockDifference> clocks;
  auto source = open(options, files, clocks);
  const bool alone = part == nullptr;
  if (alone && reads_ahead(options, files)) source = capture::read_ahead(std::move(source));
  const capture::ReportOptions wanted = report_options(options, name);
  const auto report = make_report(options, wanted, out, part);
  capture::Analysis analysis;
  // The output is made before the first packet is read: its sinks must see all packets.
  DissectOutput output(analysis, selection, wanted, *report, parse_severity(options.severity));

  for (capture::ClockDifference& clock : clocks) {
    clock.path = capture::printable(clock.path);
    clock.reference = capture::printable(clock.reference);
  }
  output.set_clocks(std::move(clocks));
  if (!options.extract.empty()) output.extract_to(options.extract);
  std::optional<OutputFile> html;
  if (!options.html.empty()) {
    html.emplace(options.html);
    output.draw_html(wanted, [&html](std::string_view text) { html->write(text); });
  }

  std::optional<OutputFile> packets;
  if (!options.export_pcap.empty()) {
    packets.emplace(options.export_pcap);
    output.collect_packets();
  }

  report->begin();
  const bool endless = options.follow || !options.live.empty();
  bool whole = false;
  {
    LiveView view(live_form(options), output, *report, out, analysis, name);
    Progress progress(!endless && alone);
    whole = read_all(*source, endless, analysis, *report, out, view, progress);
    view.end();
  }
  // This is done after Ctrl-C as well: what was read so far is analyzed to its end.
  analysis.finish();
  output.finish(!whole);
  if (html) html->close();
  const bool exported = !packets || export_packets(options, files, output.collected(), *packets);
  if (part != nullptr) part->wait_for_turn();
  out.flush();
  if (!whole) {
    print_error(stopped_text(name, *source));
    return exit_unusable;
  }
  if (!exported) {
    print_error(fmt::format("{}: stopped before the end", options.export_pcap));
    return exit_unusable;
  }
  if (!source->leftover().empty()) print_notice(fmt::format("{}: {}", name, source->leftover()));
  if (!source->problem().empty()) {
    print_error(fmt::format("{}: {}", name, source->problem()));
    return exit_unusable;
  }
  if (selection.connection &&
      (*selection.connection == 0 || *selection.connection > analysis.connections().size())) {
    print_error(fmt::format("--connection: {} has no connection {}: it has {}", name,
                            *selection.connection, analysis.connections().size()));
    return exit_unusable;
  }
  return output.failures() > 0 ? exit_findings : exit_ok;
}

// Makes malloc(3) keep freed memory. Messages of 128 KiB and more are allocated and freed all the
// time, and by default glibc returns such memory to the system at once: measured, the page faults
// took a third of the time.
void keep_memory() {
  constexpr int large_bytes = 32 * 1024 * 1024;
  mallopt(M_MMAP_THRESHOLD, large_bytes);
  mallopt(M_TRIM_THRESHOLD, 4 * large_bytes);
}

// Runs `work`, and returns the exit status. If it fails, its error is in `problem`.
int guarded(const std::function<int()>& work, std::string& problem) {
  try {
    return work();
  } catch (const OutputClosed&) {
    stop_requested = true;  // do not analyze the other files either
    return exit_ok;
  } catch (const WrongOption& error) {
    problem = fmt::format("dissect: {}", error.what());
  } catch (const std::exception& error) {
    problem = capture::printable(error.what());  // it may name a file
  }
  return exit_unusable;
}

// The same, and prints the error; after the output of the part, if there is one.
int guarded(const std::function<int()>& work, OrderedOutput::Part* part = nullptr) {
  std::string problem;
  int status = guarded(work, problem);
  if (part != nullptr) {
    std::string output_problem;
    const auto print_rest = [part] {
      part->wait_for_turn();
      return exit_ok;
    };
    status = std::max(status, guarded(print_rest, output_problem));
    if (problem.empty()) problem = output_problem;
  }
  if (!problem.empty()) print_error(problem);
  return status;
}

// One file that cannot be read does not keep the others from being analyzed; the highest status is
// returned. A second processor analyzes the next file meanwhile; what is printed, and its order,
// does not depend on that.
int dissect_separately(const DissectOptions& options, const capture::Selection& selection,
                       StandardOutput& out) {
  const std::vector<std::string>& files = options.files;
  const bool parallel = files.size() > 1 && reads_ahead(options, files);
  OrderedOutput output([&out](std::string_view text) { out.write(text); });
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    int worst = exit_ok;
    while (!stop_requested) {
      const std::size_t number = next++;
      if (number >= files.size()) break;
      OrderedOutput::Part part(output, number);
      OrderedOutput::Part* const shared = parallel ? &part : nullptr;
      worst = std::max(
          worst,
          guarded([&] { return dissect_one(options, selection, {files[number]}, out, shared); },
                  shared));
    }
    return worst;
  };
  if (!parallel) return work();
  std::future<int> other = std::async(std::launch::async | std::launch::deferred, work);
  const int own = work();
  return std::max(own, other.get());
}

int dissect_all(const DissectOptions& given) {
  keep_memory();
  DissectOptions options = given;
  for (const std::string& pattern : given.globs) add_matches(pattern, options.files);
  check_combination(options);
  const capture::Selection selection = selection_of(options);
  const StopOnSignal stop_on_signal;
  std::signal(SIGPIPE, SIG_IGN);
  StandardOutput out(options.html.empty() && options.extract.empty() &&
                     options.export_pcap.empty());
  if (!options.separate) return dissect_one(options, selection, options.files, out);
  return dissect_separately(options, selection, out);
}

}  // namespace

}  // namespace weft::cli

int weft_dissect(const char* version, const weft::cli::DissectOptions& options) {
  using namespace weft::cli;
  // DissectOptions has no stable layout. Nothing in it may be read before this.
  if (version != std::string_view(WEFT_VERSION)) {
    print_error(
        fmt::format("libweft-dissect.so is of release {} and weft of release {}; build or "
                    "install both again",
                    WEFT_VERSION, version));
    return exit_unusable;
  }
  return guarded([&options] { return dissect_all(options); });
}
