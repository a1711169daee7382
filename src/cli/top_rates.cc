#include "cli/top_rates.h"

#include <algorithm>

namespace weft::cli {
namespace {

using Json = nlohmann::json;

constexpr double ns_per_s = 1e9;

const Json& member(const Json& object, std::string_view name) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::uint64_t number(const Json& object, std::string_view name) {
  const Json& value = member(object, name);
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}

// For a terminal: what the process sends is not trusted to be plain.
std::string text(const Json& object, std::string_view name) {
  const Json& value = member(object, name);
  std::string result = value.is_string() ? value.get<std::string>() : std::string();
  std::ranges::replace_if(
      result, [](unsigned char c) { return c < ' ' || c >= 0x7F; }, '?');
  return result;
}

bool flag(const Json& object, std::string_view name) {
  const Json& value = member(object, name);
  return value.is_boolean() && value.get<bool>();
}

std::uint64_t sum(const Json& pair, std::initializer_list<std::string_view> names,
                  std::string_view what) {
  std::uint64_t total = 0;
  for (const std::string_view name : names) total += number(member(pair, name), what);
  return total;
}

// What only grows, of one queue pair or of all that are destroyed.
struct Totals {
  std::uint64_t operations = 0;
  std::uint64_t out = 0;
  std::uint64_t in = 0;
  std::uint64_t peer_ns = 0;
  std::uint64_t receive_ns = 0;
  std::uint64_t room_ns = 0;

  explicit Totals(const Json& pair)
      : operations(sum(pair, {"sends", "writes", "reads", "atomics"}, "operations")),
        out(sum(pair, {"sends", "writes", "peer_reads"}, "bytes")),
        in(sum(pair, {"received", "reads", "peer_writes"}, "bytes")),
        peer_ns(number(pair, "credit_wait_ns")),
        receive_ns(number(pair, "rnr_wait_ns")),
        room_ns(number(pair, "room_wait_ns")) {}
};

double rate(std::uint64_t now, std::uint64_t before, double seconds) {
  return seconds > 0 && now > before ? static_cast<double>(now - before) / seconds : 0;
}

// The rates that are in both kinds of objects.
void set_rates(TopFigures& figures, const Totals& now, const Totals& before, double seconds) {
  figures.operations = rate(now.operations, before.operations, seconds);
  figures.out = rate(now.out, before.out, seconds);
  figures.in = rate(now.in, before.in, seconds);
  figures.waits[TopFigures::peer].share = rate(now.peer_ns, before.peer_ns, seconds) / ns_per_s;
  figures.waits[TopFigures::receive].share =
      rate(now.receive_ns, before.receive_ns, seconds) / ns_per_s;
  figures.waits[TopFigures::tcp].share = rate(now.room_ns, before.room_ns, seconds) / ns_per_s;
}

live::LatencyHistogram latencies(const Json& pair) {
  live::LatencyHistogram all;
  const Json& kinds = member(pair, "latencies");
  if (!kinds.is_object()) return all;
  for (const Json& buckets : kinds) {
    if (!buckets.is_array()) continue;
    for (const Json& bucket : buckets) {
      const bool whole = bucket.is_array() && bucket.size() == 2 &&
                         bucket[0].is_number_unsigned() && bucket[1].is_number_unsigned();
      if (whole) all.add_bucket(bucket[0].get<std::size_t>(), bucket[1].get<std::uint64_t>());
    }
  }
  return all;
}

TopFigures figures_of(const Json& pair, const Json& before, double seconds) {
  TopFigures figures;
  set_rates(figures, Totals(pair), Totals(before), seconds);
  figures.latencies = latencies(pair);
  figures.latencies.subtract(latencies(before));
  figures.send_depth = number(pair, "send_depth");
  figures.send_size = number(pair, "send_size");
  figures.receive_depth = number(pair, "receive_depth");
  figures.receive_size = number(pair, "receive_size");
  figures.waits[TopFigures::connection].now = flag(pair, "awaits_connection") ? 1 : 0;
  figures.waits[TopFigures::peer].now = flag(pair, "awaits_credits") ? 1 : 0;
  figures.waits[TopFigures::tcp].now = flag(pair, "awaits_room") ? 1 : 0;
  figures.waits[TopFigures::receive].now = flag(pair, "awaits_receive") ? 1 : 0;
  return figures;
}

// The same queue pair in another report; null where it was not there. Numbers of queue pairs are
// reused late.
const Json& same(const Json& report, std::uint64_t queue_pair) {
  static const Json none;
  const Json& pairs = member(report, "queue_pairs");
  if (!pairs.is_array()) return none;
  const auto found = std::ranges::find_if(
      pairs, [&](const Json& pair) { return number(pair, "number") == queue_pair; });
  return found == pairs.end() ? none : *found;
}

// The rates of a device: its live and its destroyed queue pairs together, so that what a queue pair
// did before its end counts.
TopFigures device_rates(const Json& before, const Json& now, double seconds) {
  TopFigures sum;
  const auto add = [&](const Json& report, TopFigures& total) {
    const Json empty;
    TopFigures one;
    set_rates(one, Totals(member(report, "destroyed_queue_pairs")), Totals(empty), 1);
    total.add(one);
    const Json& pairs = member(report, "queue_pairs");
    for (const Json& pair : pairs.is_array() ? pairs : Json::array()) {
      set_rates(one, Totals(pair), Totals(empty), 1);
      total.add(one);
    }
  };
  TopFigures earlier;
  add(before, earlier);
  add(now, sum);
  const auto divide = [&](double later, double former) {
    return seconds > 0 ? std::max(0.0, later - former) / seconds : 0;
  };
  sum.operations = divide(sum.operations, earlier.operations);
  sum.out = divide(sum.out, earlier.out);
  sum.in = divide(sum.in, earlier.in);
  for (std::size_t i = 0; i < TopFigures::causes; ++i) {
    sum.waits[i].share = divide(sum.waits[i].share, earlier.waits[i].share);
  }
  return sum;
}

}  // namespace

void TopFigures::add(const TopFigures& other) {
  operations += other.operations;
  out += other.out;
  in += other.in;
  latencies.add(other.latencies);
  send_depth += other.send_depth;
  send_size += other.send_size;
  receive_depth += other.receive_depth;
  receive_size += other.receive_size;
  for (std::size_t i = 0; i < causes; ++i) {
    waits[i].share += other.waits[i].share;
    waits[i].now += other.waits[i].now;
  }
}

double TopFigures::waiting() const {
  double all = 0;
  for (const Wait& wait : waits) all += std::max(wait.share, static_cast<double>(wait.now));
  return all;
}

std::string_view name_of(TopFigures::Cause cause) {
  constexpr std::array<std::string_view, TopFigures::causes> names{"connection", "peer", "tcp",
                                                                   "receive"};
  return names[cause];
}

TopDevice rates(const Json& before, const TopAnswer& now) {
  TopDevice device{.pid = now.pid,
                   .program = now.program,
                   .device = text(now.report, "device"),
                   .address = text(now.report, "address"),
                   .why = now.why,
                   .figures = {},
                   .queue_pairs = {}};
  if (!now.answered) return device;
  const std::uint64_t then_ns = number(before, "time_ns");
  const std::uint64_t now_ns = number(now.report, "time_ns");
  if (then_ns != 0 && now_ns > then_ns) {
    device.seconds = static_cast<double>(now_ns - then_ns) / ns_per_s;
  }
  for (const Json& pair : member(now.report, "queue_pairs")) {
    const std::uint64_t id = number(pair, "number");
    TopQueuePair row{.number = id,
                     .type = text(pair, "type"),
                     .state = text(pair, "state"),
                     .carrier = text(pair, "carrier"),
                     .peer = text(pair, "peer"),
                     .figures = figures_of(pair, same(before, id), device.seconds)};
    if (row.carrier != "none") ++device.connected;
    device.figures.add(row.figures);
    device.queue_pairs.push_back(std::move(row));
  }
  const TopFigures all = device_rates(before, now.report, device.seconds);
  device.figures.operations = all.operations;
  device.figures.out = all.out;
  device.figures.in = all.in;
  for (std::size_t i = 0; i < TopFigures::causes; ++i) {
    device.figures.waits[i].share = all.waits[i].share;
  }
  for (const Json& queue : member(now.report, "completion_queues")) {
    device.completion_depth += number(queue, "depth");
  }
  return device;
}

}  // namespace weft::cli
