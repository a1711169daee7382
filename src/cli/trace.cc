#include "cli/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

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

Trace read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  Json document = Json::parse(file, nullptr, false);
  // A joined file has no process of its own.
  const bool ours = document.is_object() && document["otherData"].is_object() &&
                    document["otherData"].contains("weft_trace") &&
                    document["traceEvents"].is_array();
  if (!ours) throw std::runtime_error(path + ": is no file of `weft run --trace`");
  return {path, std::move(document["otherData"]), std::move(document["traceEvents"])};
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

// What to add to the times of `other`, so that they are on the clock of `first`. Processes of one
// running kernel share the clock. Between hosts, messages in both directions show the difference,
// if the shortest ways there and back took equally long; else the wall clocks have to agree.
double clock_difference_us(const Trace& first, const Trace& other) {
  if (first.header.at("boot") == other.header.at("boot")) return 0;
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

// In a script element only "</" would end the text; JSON may write the same as "<\\/".
std::string page_of(const Json& joined) {
  std::string page(page_before_trace);
  char last = 0;
  for (const char c : text_of(joined)) {
    if (last == '<' && c == '/') page += '\\';
    page += c;
    last = c;
  }
  return page += page_behind_trace;
}

void print_summary(const Json& joined) {
  std::map<std::string, std::size_t> requests;
  std::size_t arrows = 0;
  for (const Json& event : joined.at("traceEvents")) {
    const bool outer = event.value("cat", "") == "request" && event.value("ph", "") == "b" &&
                       event.contains("args");
    if (outer) ++requests[event.at("name")];
    if (event.value("name", "") == "placed") ++arrows;
  }
  for (const auto& [track, count] : requests) fmt::print("{}: {} requests\n", track, count);
  fmt::print("{} messages with post and placement\n", arrows);
}

}  // namespace

int trace(const TraceOptions& options) try {
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
