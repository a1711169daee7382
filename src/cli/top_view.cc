#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/top.h"

namespace weft::cli {
namespace {

constexpr double per_cent = 100;

// Three figures and a unit: 12.3k, 4.56M.
std::string scaled(double value) {
  constexpr std::string_view units = " kMGTP";
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  const std::string number = fmt::format("{:.{}f}", value, decimals);
  return unit == 0 ? number : number + units[unit];
}

std::string duration(std::uint64_t ns) {
  constexpr double thousand = 1e3;
  const auto value = static_cast<double>(ns);
  if (ns == 0) return "-";
  if (value < thousand) return fmt::format("{}ns", ns);
  if (value < thousand * thousand) return fmt::format("{:.3g}us", value / thousand);
  if (value < thousand * thousand * thousand) {
    return fmt::format("{:.3g}ms", value / thousand / thousand);
  }
  return fmt::format("{:.3g}s", value / thousand / thousand / thousand);
}

constexpr double median = 0.5;
constexpr double nearly_all = 0.99;
constexpr double rarest = 0.999;

// "peer 83%, tcp now": parts of the time, or what has only begun.
std::string waits(const TopFigures& figures) {
  constexpr double shown = 0.005;
  std::string text;
  for (std::size_t i = 0; i < TopFigures::causes; ++i) {
    const TopFigures::Wait& wait = figures.waits[i];
    if (wait.share < shown && wait.now == 0) continue;
    if (!text.empty()) text += ", ";
    text += name_of(static_cast<TopFigures::Cause>(i));
    text += wait.share < shown ? " now" : fmt::format(" {:.0f}%", wait.share * per_cent);
  }
  return text.empty() ? "-" : text;
}

std::string why_text(std::string_view why) {
  if (why == "stopped") return "does not answer: it is stopped";
  if (why == "idle") return "has no connection yet, or is driven by its own calls only";
  return "does not answer";
}

std::string figures(const TopFigures& shown, std::uint64_t completions, bool with_completions) {
  return fmt::format("{:>7} {:>7} {:>7} {:>8} {:>8} {:>11} {:>11} {:>5}  {}",
                     scaled(shown.operations), scaled(shown.out), scaled(shown.in),
                     duration(shown.latencies.percentile_ns(median)),
                     duration(shown.latencies.percentile_ns(nearly_all)),
                     fmt::format("{}/{}", shown.send_depth, shown.send_size),
                     fmt::format("{}/{}", shown.receive_depth, shown.receive_size),
                     with_completions ? std::to_string(completions) : "", waits(shown));
}

nlohmann::json json_of(const TopFigures& shown) {
  nlohmann::json waits;
  for (std::size_t i = 0; i < TopFigures::causes; ++i) {
    waits[std::string(name_of(static_cast<TopFigures::Cause>(i)))] = {
        {"share", shown.waits[i].share}, {"now", shown.waits[i].now}};
  }
  return {{"operations_per_s", shown.operations},
          {"out_bytes_per_s", shown.out},
          {"in_bytes_per_s", shown.in},
          {"latency_ns",
           {{"count", shown.latencies.count()},
            {"p50", shown.latencies.percentile_ns(median)},
            {"p99", shown.latencies.percentile_ns(nearly_all)},
            {"p999", shown.latencies.percentile_ns(rarest)}}},
          {"send_depth", shown.send_depth},
          {"send_size", shown.send_size},
          {"receive_depth", shown.receive_depth},
          {"receive_size", shown.receive_size},
          {"waits", std::move(waits)}};
}

}  // namespace

const std::vector<std::string>& top_sort_keys() {
  static const std::vector<std::string> keys{"ops", "out", "in",    "p50", "p99",
                                             "sq",  "rq",  "waits", "pid", "program"};
  return keys;
}

void sort_devices(std::vector<TopDevice>& devices, std::string_view key) {
  const auto value = [key](const TopDevice& device) -> double {
    const TopFigures& figures = device.figures;
    if (key == "ops") return figures.operations;
    if (key == "out") return figures.out;
    if (key == "in") return figures.in;
    if (key == "p50") return static_cast<double>(figures.latencies.percentile_ns(median));
    if (key == "p99") return static_cast<double>(figures.latencies.percentile_ns(nearly_all));
    if (key == "sq") return static_cast<double>(figures.send_depth);
    if (key == "rq") return static_cast<double>(figures.receive_depth);
    if (key == "waits") return figures.waiting();
    return -static_cast<double>(device.pid);
  };
  std::ranges::stable_sort(devices, [&](const TopDevice& one, const TopDevice& other) {
    if (key == "program") return one.program < other.program;
    return value(one) > value(other);
  });
}

std::string table(const std::vector<TopDevice>& devices, bool queue_pairs) {
  std::string text = fmt::format(
      "{:>8} {:<16} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8} {:>11} {:>11} {:>5}  {}\n", "PID",
      "PROGRAM", "QP", "OPS/s", "OUT B/s", "IN B/s", "p50", "p99", "SQ", "RQ", "CQ", "WAITS");
  for (const TopDevice& device : devices) {
    text += fmt::format("{:>8} {:<16} ", device.pid, device.program);
    if (!device.why.empty()) {
      text += why_text(device.why) + "\n";
      continue;
    }
    text += fmt::format(
        "{:>7} {}{}\n", fmt::format("{}/{}", device.connected, device.queue_pairs.size()),
        figures(device.figures, device.completion_depth, true),
        device.skipped == 0 ? "" : fmt::format(", {} locked queue pairs", device.skipped));
    for (const TopQueuePair& pair : device.queue_pairs) {
      if (!queue_pairs) break;
      const std::string name = fmt::format("0x{:06x} {} {} {}", pair.number, pair.type, pair.state,
                                           pair.carrier == "none" ? "" : pair.carrier);
      text += fmt::format("  {:<31} {}{}{}\n", name, figures(pair.figures, 0, false),
                          pair.peer.empty() ? "" : "  to ", pair.peer);
    }
  }
  return text;
}

std::string json(const std::vector<TopDevice>& devices) {
  nlohmann::json list = nlohmann::json::array();
  for (const TopDevice& device : devices) {
    nlohmann::json one = {
        {"pid", device.pid}, {"program", device.program}, {"answered", device.why.empty()}};
    if (device.why.empty()) {
      one.update(json_of(device.figures));
      one["device"] = device.device;
      one["address"] = device.address;
      one["seconds"] = device.seconds;
      one["connected"] = device.connected;
      one["skipped"] = device.skipped;
      one["completion_depth"] = device.completion_depth;
      one["queue_pairs"] = nlohmann::json::array();
      for (const TopQueuePair& pair : device.queue_pairs) {
        nlohmann::json row = json_of(pair.figures);
        row["number"] = pair.number;
        row["type"] = pair.type;
        row["state"] = pair.state;
        row["carrier"] = pair.carrier;
        row["peer"] = pair.peer;
        one["queue_pairs"].push_back(std::move(row));
      }
    } else {
      one["why"] = device.why;
    }
    list.push_back(std::move(one));
  }
  const nlohmann::json document = {{"version", 1}, {"devices", std::move(list)}};
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace weft::cli
