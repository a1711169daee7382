#include "cli/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <streambuf>
#include <string_view>
#include <utility>

#include "cli/same_file.h"
#include "cli/terminal.h"
#include "cli/trace_page.h"

namespace weft::cli {
namespace {

using Json = nlohmann::json;

constexpr int misused = 2;
constexpr double us_per_ns = 1e-3;

// One file of `weft run --trace`.
struct Trace {
  std::string path;
  Json header;
  Json events;
};

// The device writes 256 MiB at most; several such files may be joined.
constexpr std::uintmax_t most_bytes = std::uintmax_t{4} << 30;
// Events have three levels below the document. The copies of a deep value are recursive, and so is
// its destruction.
constexpr int most_levels = 16;

// A file may come from anywhere. Regular files only: a FIFO would wait, and a device may never end.
void check_size(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw std::runtime_error(path + ": is no regular file, or cannot be read");
  }
  if (std::filesystem::file_size(path) > most_bytes) {
    throw std::runtime_error(path + ": is larger than 4 GiB; no trace is");
  }
}

// Throws for what an event of a trace cannot have, so that the functions below can rely on it.
void check(const Json& event) {
  const auto is_text = [&](const char* name) {
    return !event.contains(name) || event[name].is_string();
  };
  const auto is_whole = [&](const char* name) {
    return !event.contains(name) || event[name].is_number_integer();
  };
  const bool right = event.is_object() && is_text("ph") && is_text("cat") && is_text("name") &&
                     is_whole("pid") && is_whole("tid") &&
                     (!event.contains("ts") || event["ts"].is_number());
  if (!right) throw std::runtime_error("an event has a field of a wrong type");
  if (event.value("cat", "") != "flow") return;
  const bool arrow =
      event.contains("id") && event["id"].is_number_unsigned() && event.contains("ts");
  if (!arrow) throw std::runtime_error("an arrow has no number or no time");
  if (event.value("ph", "") != "s") return;
  const bool begins = event.contains("args") && event["args"].is_object() &&
                      event["args"].contains("request") && event.contains("pid") &&
                      event.contains("tid");
  if (!begins) throw std::runtime_error("an arrow does not begin in a request");
}

// `header`: of a trace that is not joined, with what clock_difference_us() and renumber() need.
void check_header(const Json& header) {
  for (const char* name : {"pid", "monotonic_ns", "realtime_ns"}) {
    const bool right = header.contains(name) && header[name].is_number_unsigned() &&
                       header[name].get<std::uint64_t>() < (std::uint64_t{1} << 62);
    if (!right) throw std::runtime_error(std::string("its header has no ") + name);
  }
  if (!header.contains("boot")) throw std::runtime_error("its header has no boot");
}

// The first value of a file, as far as it is an object or a list. A process that still writes its
// trace adds events behind the end of the text and then moves the end: what was read before can
// have the old end, and what is read after it the new events.
class FirstValue final : public std::streambuf {
 public:
  explicit FirstValue(std::istream& file) : file_(file) {}

 protected:
  int_type underflow() override {
    if (ended_ || !file_) return traits_type::eof();
    file_.read(piece_.data(), static_cast<std::streamsize>(piece_.size()));
    const std::size_t got = up_to_end({piece_.data(), static_cast<std::size_t>(file_.gcount())});
    setg(piece_.data(), piece_.data(), piece_.data() + got);
    return got > 0 ? traits_type::to_int_type(piece_.front()) : traits_type::eof();
  }

 private:
  // The part of the next bytes that belongs to the value.
  std::size_t up_to_end(std::string_view bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      take(bytes[i]);
      if (ended_) return i + 1;
    }
    return bytes.size();
  }
  // Brackets within strings are text; a string ends at a quotation mark without a backslash.
  void take(char c) {
    if (in_string_) {
      if (c == '"' && !escaped_) in_string_ = false;
      escaped_ = c == '\\' && !escaped_;
      return;
    }
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') open();
    if (c == '}' || c == ']') ended_ = --levels_ <= 0;
  }
  void open() {
    if (++levels_ > most_levels) {
      throw std::runtime_error("its values are too deep in one another");
    }
  }

  std::istream& file_;
  std::array<char, 65536> piece_{};
  int levels_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool ended_ = false;
};

Json parse(std::istream& file) {
  FirstValue first(file);
  std::istream text(&first);
  Json document = Json::parse(text, nullptr, false);
  const bool ours = document.is_object() && document["otherData"].is_object() &&
                    document["otherData"].contains("weft_trace") &&
                    document["traceEvents"].is_array();
  if (!ours) throw std::runtime_error("is no file of `weft run --trace`");
  // A joined file has no process of its own.
  if (!document["otherData"].contains("joined")) check_header(document["otherData"]);
  for (const Json& event : document["traceEvents"]) check(event);
  return document;
}

Trace read(const std::string& path) {
  check_size(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  try {
    Json document = parse(file);
    return {path, std::move(document["otherData"]), std::move(document["traceEvents"])};
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

bool is_flow(const Json& event, std::string_view phase) {
  return event.value("cat", "") == "flow" && event.value("ph", "") == phase;
}

// The times of arrows that begin or end in the trace, by their number.
std::map<std::uint64_t, double> flow_times(const Trace& trace, std::string_view phase) {
  std::map<std::uint64_t, double> times;
  for (const Json& event : trace.events) {
    if (is_flow(event, phase)) times[event.at("id")] = event.at("ts");
  }
  return times;
}

// The shortest time from a post in one trace to its placement in the other.
std::optional<double> shortest(const Trace& from, const Trace& to) {
  const auto begun = flow_times(from, "s");
  std::optional<double> least;
  for (const auto& [id, end_us] : flow_times(to, "f")) {
    const auto begin = begun.find(id);
    if (begin == begun.end()) continue;
    least = std::min(least.value_or(std::numeric_limits<double>::max()), end_us - begin->second);
  }
  return least;
}

// A file that could not name its kernel has an empty text there (a sandbox without /proc).
bool same_kernel(const Trace& first, const Trace& other) {
  const Json& boot = first.header.at("boot");
  return boot.is_string() && boot != "" && boot == other.header.at("boot");
}

// What to add to the times of `other`, so that they are on the clock of `first`. Processes of one
// running kernel share the clock. Between hosts, messages in both directions show the difference,
// if the shortest ways there and back took equally long; else the wall clocks have to agree.
double clock_difference_us(const Trace& first, const Trace& other) {
  if (same_kernel(first, other)) return 0;
  const auto wall_ns = [](const Trace& trace) {
    return trace.header.at("realtime_ns").get<std::int64_t>() -
           trace.header.at("monotonic_ns").get<std::int64_t>();
  };
  const auto there = shortest(first, other);
  const auto back = shortest(other, first);
  if (there && back) return (*back - *there) / 2;
  return static_cast<double>(wall_ns(other) - wall_ns(first)) * us_per_ns;
}

// Processes of several hosts may have equal numbers.
void renumber(Trace& trace, std::set<std::int64_t>& taken) {
  std::int64_t number = trace.header.at("pid");
  if (taken.insert(number).second) return;
  while (!taken.insert(number).second) ++number;
  for (Json& event : trace.events) event["pid"] = number;
}

// A mark "placed" in the span of the request, from where its arrow ends.
void mark_placements(Json& events) {
  std::map<std::uint64_t, double> placed;
  for (const Json& event : events) {
    if (is_flow(event, "f")) placed[event.at("id")] = event.at("ts");
  }
  Json marks = Json::array();
  for (const Json& event : events) {
    if (!is_flow(event, "s")) continue;
    const auto end = placed.find(event.at("id"));
    if (end == placed.end()) continue;
    marks.push_back({{"ph", "n"},
                     {"cat", "request"},
                     {"name", "placed"},
                     {"id2", {{"local", event.at("args").at("request")}}},
                     {"pid", event.at("pid")},
                     {"tid", event.at("tid")},
                     {"ts", end->second}});
  }
  for (Json& mark : marks) events.push_back(std::move(mark));
}

Json join(std::vector<Trace>& traces) {
  Json joined = {{"displayTimeUnit", "ns"},
                 {"otherData", {{"weft_trace", 1}, {"joined", Json::array()}}},
                 {"traceEvents", Json::array()}};
  Json& events = joined["traceEvents"];
  if (traces.front().header.contains("joined")) {
    joined["otherData"] = traces.front().header;
    events = std::move(traces.front().events);
    return joined;
  }
  std::set<std::int64_t> taken;
  for (Trace& trace : traces) {
    const double shift_us = clock_difference_us(traces.front(), trace);
    renumber(trace, taken);
    for (const Json& each : trace.events) {
      Json event = each;
      if (event.contains("ts")) event["ts"] = event["ts"].get<double>() + shift_us;
      events.push_back(std::move(event));
    }
    Json header = trace.header;
    header["shifted_us"] = shift_us;
    joined["otherData"]["joined"].push_back(std::move(header));
  }
  mark_placements(events);
  return joined;
}

void write(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot be written");
}

// One event a line, as in the files that were read.
std::string text_of(const Json& joined) {
  std::string text = fmt::format(R"({{"displayTimeUnit":"ns","otherData":{},"traceEvents":[)",
                                 joined.at("otherData").dump());
  std::string_view separator = "\n";
  for (const Json& event : joined.at("traceEvents")) {
    text += separator;
    text += event.dump();
    separator = ",\n";
  }
  return text + "\n]}\n";
}

// In a script element "</script" ends the text, and "<!--" changes what ends it. JSON has "<" in
// strings only, and they may write it in another way.
std::string page_of(const Json& joined) {
  std::string page(page_before_trace);
  for (const char c : text_of(joined)) {
    if (c == '<') {
      page += "\\u003c";
    } else {
      page += c;
    }
  }
  return page += page_behind_trace;
}

// Without characters that would control the terminal: also those from U+0080 to U+009F, which UTF-8
// writes as 0xC2 and their number.
std::string printable(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < ' ' || byte == 0x7F) text[i] = '?';
    if (byte != 0xC2 || i + 1 == text.size()) continue;
    if (static_cast<unsigned char>(text[i + 1]) < 0xA0) text[i] = text[i + 1] = '?';
  }
  return text;
}

// Queue pairs of several processes may have equal numbers.
void print_summary(const Json& joined) {
  std::map<std::pair<std::int64_t, std::string>, std::size_t> requests;
  std::set<std::int64_t> processes;
  std::size_t arrows = 0;
  for (const Json& event : joined.at("traceEvents")) {
    const bool outer = event.value("cat", "") == "request" && event.value("ph", "") == "b" &&
                       event.contains("args");
    if (outer) {
      const std::int64_t process = event.value("pid", std::int64_t{0});
      processes.insert(process);
      ++requests[{process, event.value("name", "")}];
    }
    if (event.value("name", "") == "placed") ++arrows;
  }
  for (const auto& [place, count] : requests) {
    if (processes.size() > 1) fmt::print("process {}, ", place.first);
    fmt::print("{}: {} requests\n", printable(place.second), count);
  }
  fmt::print("{} messages with post and placement\n", arrows);
}

// No file that is written may be an input, or the other one that is written.
void check_written_files(const TraceOptions& options) {
  const std::pair<const char*, const std::string&> written[] = {{"-o", options.output},
                                                                {"--html", options.html}};
  for (const auto& [option, path] : written) {
    for (const std::string& file : options.files) {
      if (path.empty() || !same_file(file, path)) continue;
      throw std::runtime_error(fmt::format("{} would overwrite its input {}", option, file));
    }
  }
  const bool both = !options.output.empty() && !options.html.empty();
  if (both && same_file(options.output, options.html)) {
    throw std::runtime_error(fmt::format("-o and --html both write {}", options.html));
  }
}

}  // namespace

int trace(const TraceOptions& options) try {
  check_written_files(options);
  std::vector<Trace> traces;
  for (const std::string& path : options.files) traces.push_back(read(path));
  for (const Trace& each : traces) {
    if (!each.header.contains("joined") || traces.size() == 1) continue;
    throw std::runtime_error(each.path + ": is joined already; name the files it was made from");
  }
  const Json joined = join(traces);
  if (!options.output.empty()) write(options.output, text_of(joined));
  if (!options.html.empty()) write(options.html, page_of(joined));
  if (options.output.empty() && options.html.empty()) print_summary(joined);
  return 0;
} catch (const std::exception& error) {
  print_error(error.what());
  return misused;
}

}  // namespace weft::cli
