#include "cli/dissect_arguments.h"

#include <fmt/format.h>
#include <glob.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/same_file.h"

namespace weft::cli {
namespace {

// Parses a decimal number, or a hexadecimal one after 0x.
std::optional<std::uint32_t> parse_number(const char* option, std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::string_view digits = text;
  const bool hexadecimal = digits.starts_with("0x") || digits.starts_with("0X");
  if (hexadecimal) digits.remove_prefix(2);
  std::uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hexadecimal ? 16 : 10);
  // A number must be the whole text, so that 12x is a mistake. from_chars() takes no sign here.
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    throw WrongOption(fmt::format("{}: '{}' is not a number such as 123 or 0x7b", option, text));
  }
  return value;
}

std::optional<capture::Operation::Kind> parse_kind(const std::string& text) {
  using Kind = capture::Operation::Kind;
  if (text.empty()) return std::nullopt;
  for (const Kind kind : {Kind::send, Kind::write, Kind::read, Kind::fetch_add, Kind::compare_swap,
                          Kind::atomic, Kind::immediate}) {
    if (text == to_string(kind)) return kind;
  }
  throw WrongOption(fmt::format(
      "--opcode: '{}' is none of send, write, read, fetch_add, compare_swap, atomic, immediate",
      text));
}

std::optional<capture::Filter> parse_filter(const std::string& text) {
  if (text.empty()) return std::nullopt;
  try {
    return capture::Filter::parse(text);
  } catch (const capture::FilterError& error) {
    throw WrongOption(
        fmt::format("--filter: {}\n{}", error.what(), capture::caret_text(text, error)));
  }
}

// No file that is written may be an input, or another one that is written.
void check_written_files(const DissectOptions& options) {
  const std::pair<const char*, const std::string&> written[] = {
      {"--html", options.html}, {"--export-pcap", options.export_pcap}};
  for (const auto& [option, path] : written) {
    if (path.empty()) continue;
    for (const std::string& file : options.files) {
      if (file != "-" && same_file(file, path)) {
        throw WrongOption(fmt::format("{} would overwrite its input {}", option, file));
      }
    }
  }
  if (!options.html.empty() && !options.export_pcap.empty() &&
      same_file(options.html, options.export_pcap)) {
    throw WrongOption(fmt::format("--html and --export-pcap both write {}", options.html));
  }
}

// The input is read twice, so it must be there a second time.
void check_export(const DissectOptions& options) {
  namespace fs = std::filesystem;
  if (options.export_pcap.empty()) return;
  if (!options.live.empty() || options.separate || options.follow) {
    throw WrongOption("--export-pcap excludes --live, --separate and --follow");
  }
  std::error_code ignored;
  for (const std::string& file : options.files) {
    if (file == "-" || (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored))) {
      throw WrongOption(
          fmt::format("--export-pcap reads its input twice, and '{}' is not a file", file));
    }
  }
}

}  // namespace

std::optional<std::int64_t> parse_seconds(const char* option, std::string_view text) {
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  // The limit keeps the nanoseconds within 64 bits. It is a negated comparison, which refuses NaN
  // too.
  if (error != std::errc{} || end != text.data() + text.size() || !(std::abs(seconds) < 9e9)) {
    throw WrongOption(fmt::format("{}: '{}' is not a number of seconds", option, text));
  }
  return static_cast<std::int64_t>(std::llround(seconds * 1e9));
}

capture::Selection selection_of(const DissectOptions& options) {
  capture::Selection selection;
  selection.connection = parse_number("--connection", options.connection);
  selection.queue_pair = parse_number("--qp", options.queue_pair);
  selection.key = parse_number("--rkey", options.key);
  selection.xid = parse_number("--xid", options.xid);
  selection.kind = parse_kind(options.opcode);
  selection.filter = parse_filter(options.filter);
  const std::string_view time = options.time;
  if (time.empty()) return selection;
  const std::size_t dots = time.find("..");
  if (dots == std::string_view::npos) {
    throw WrongOption("--time needs FROM..TO in seconds, such as 1.5..2, 3.. or ..10");
  }
  selection.from_ns = parse_seconds("--time", time.substr(0, dots));
  selection.to_ns = parse_seconds("--time", time.substr(dots + 2));
  if (selection.from_ns && selection.to_ns && *selection.to_ns < *selection.from_ns) {
    throw WrongOption(fmt::format("--time: '{}' ends before it begins", time));
  }
  return selection;
}

std::optional<capture::Severity> parse_severity(const std::string& text) {
  using capture::Severity;
  if (text.empty()) return std::nullopt;
  for (const Severity severity : {Severity::note, Severity::warning, Severity::error}) {
    if (text == to_string(severity)) return severity;
  }
  throw WrongOption(fmt::format("--severity: '{}' is none of note, warning, error", text));
}

void check_combination(const DissectOptions& options) {
  if (options.files.empty() && options.live.empty()) throw WrongOption("which file?");
  if (!options.files.empty() && !options.live.empty()) {
    throw WrongOption("--live and files exclude each other");
  }
  // An interface is one trace already.
  if (options.separate && !options.live.empty()) {
    throw WrongOption("--live and --separate exclude each other");
  }
  // Both would go to standard output.
  if (options.json && options.csv) throw WrongOption("--json and --csv exclude each other");
  if (!options.clock_offsets.empty() && !options.live.empty()) {
    throw WrongOption("--clock-offset excludes --live: an interface has the clock of this host");
  }
  // The kernel filters what it captures; files are filtered by the other options.
  if (!options.bpf.empty() && options.live.empty()) throw WrongOption("--bpf needs --live");
  if (!options.extract.empty() && options.separate) {
    throw WrongOption("--extract and --separate exclude each other: a directory has one trace");
  }
  if (!options.html.empty() && options.separate) {
    throw WrongOption("--html and --separate exclude each other: a page has one trace");
  }
  check_export(options);
  check_written_files(options);
  // Offsets bring several files to one time, and these read a single file at a time.
  if (!options.clock_offsets.empty() && (options.separate || options.follow)) {
    throw WrongOption("--clock-offset excludes --separate and --follow");
  }
  // The ends of several growing files cannot be put in order: a later packet may still follow in
  // any of them.
  if (options.follow && options.files.size() != 1)
    throw WrongOption("--follow needs exactly one file");
  // Tables of different columns do not fit into one CSV output.
  if (options.csv && options.lists.count() > 1) {
    throw WrongOption(
        "--csv prints one table: --operations, --connections, --rpc, --commands, --management or "
        "--findings");
  }
}

void add_matches(const std::string& pattern, std::vector<std::string>& files) {
  glob_t found{};
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::set<fs::path> known;
  for (const std::string& file : files) known.insert(fs::weakly_canonical(file, ignored));
  const int status = ::glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found);
  for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    const std::string match = found.gl_pathv[i];
    if (known.insert(fs::weakly_canonical(match, ignored)).second) files.push_back(match);
  }
  ::globfree(&found);
  if (status == GLOB_NOMATCH) {
    throw WrongOption(fmt::format("--glob: no file matches '{}'", pattern));
  }
  if (status != 0) throw WrongOption(fmt::format("--glob: cannot search for '{}'", pattern));
}

}  // namespace weft::cli
