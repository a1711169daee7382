#include "cli/top_rates.h"

#include <algorithm>
#include <unordered_map>

#include "cli/terminal.h"

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

// What the process sends is not trusted to be plain.
std::string text(const Json& object, std::string_view name) {
  const Json& value = member(object, name);
  return value.is_string() ? plain_name(value.get<std::string>()) : std::string();
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

// An empty list where there is no list of this name. A reference: a copy of the list is as large as
// the report.
const Json& list(const Json& object, std::string_view name) {
  static const Json none = Json::array();
  const Json& value = member(object, name);
  return value.is_array() ? value : none;
}

// What only grows, of one queue pair or of all that are destroyed.
struct Totals {
  std::uint64_t operations = 0;
  std::uint64_t out = 0;
  std::uint64_t in = 0;
  std::uint64_t peer_ns = 0;
  std::uint64_t receive_ns = 0;
  std::uint64_t room_ns = 0;

  Totals() = default;
  explicit Totals(const Json& pair)
      : operations(sum(pair, {"sends", "writes", "reads", "atomics"}, "operations")),
        out(sum(pair, {"sends", "writes", "peer_reads"}, "bytes")),
        in(sum(pair, {"received", "reads", "peer_writes"}, "bytes")),
        peer_ns(number(pair, "credit_wait_ns")),
        receive_ns(number(pair, "rnr_wait_ns")),
        room_ns(number(pair, "room_wait_ns")) {}

  void add(const Totals& other) {
    operations += other.operations;
    out += other.out;
    in += other.in;
    peer_ns += other.peer_ns;
    receive_ns += other.receive_ns;
    room_ns += other.room_ns;
  }
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

// The queue pairs of a report by their number, which are reused late.
using Pairs = std::unordered_map<std::uint64_t, const Json*>;

Pairs pairs_of(const Json& report) {
  Pairs pairs;
  for (const Json& pair : list(report, "queue_pairs")) pairs[number(pair, "number")] = &pair;
  return pairs;
}

// Two reports of a device. A queue pair that was locked for long is left out of its report: nothing
// is known of it there.
struct Reports {
  const Json& before;
  const Json& now;
  double seconds = 0;
  Pairs before_pairs = pairs_of(before);
  bool complete = number(before, "skipped") == 0 && number(now, "skipped") == 0;

  // What to compare a queue pair with. One that is missing is new, and was zero; in an incomplete
  // report it may have been left out, and its rates are not known.
  [[nodiscard]] const Json& earlier(const Json& pair) const {
    static const Json none;
    const auto found = before_pairs.find(number(pair, "number"));
    if (found != before_pairs.end()) return *found->second;
    return complete ? none : pair;
  }
};

Totals totals(const Json& report) {
  Totals sum(member(report, "destroyed_queue_pairs"));
  for (const Json& pair : list(report, "queue_pairs")) sum.add(Totals(pair));
  return sum;
}

// The rates of a device: its live and its destroyed queue pairs together, so that what a queue pair
// did before its end counts. Where queue pairs are left out, only those that are in both reports.
TopFigures device_rates(const Reports& reports) {
  TopFigures figures;
  if (reports.complete) {
    set_rates(figures, totals(reports.now), totals(reports.before), reports.seconds);
    return figures;
  }
  Totals now;
  Totals before;
  for (const Json& pair : list(reports.now, "queue_pairs")) {
    now.add(Totals(pair));
    before.add(Totals(reports.earlier(pair)));
  }
  set_rates(figures, now, before, reports.seconds);
  return figures;
}

double seconds_between(const Json& before, const Json& now) {
  const std::uint64_t then_ns = number(before, "time_ns");
  const std::uint64_t now_ns = number(now, "time_ns");
  if (then_ns == 0 || now_ns <= then_ns) return 0;
  return static_cast<double>(now_ns - then_ns) / ns_per_s;
}

TopQueuePair row_of(const Json& pair, const Reports& reports) {
  return {.number = number(pair, "number"),
          .type = text(pair, "type"),
          .state = text(pair, "state"),
          .carrier = text(pair, "carrier"),
          .peer = text(pair, "peer"),
          .figures = figures_of(pair, reports.earlier(pair), reports.seconds)};
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
  const Reports reports{before, now.report, seconds_between(before, now.report)};
  device.seconds = reports.seconds;
  device.skipped = number(now.report, "skipped");
  for (const Json& pair : list(now.report, "queue_pairs")) {
    TopQueuePair row = row_of(pair, reports);
    if (row.carrier != "none") ++device.connected;
    device.figures.add(row.figures);
    device.queue_pairs.push_back(std::move(row));
  }
  const TopFigures all = device_rates(reports);
  device.figures.operations = all.operations;
  device.figures.out = all.out;
  device.figures.in = all.in;
  for (std::size_t i = 0; i < TopFigures::causes; ++i) {
    device.figures.waits[i].share = all.waits[i].share;
  }
  for (const Json& queue : list(now.report, "completion_queues")) {
    device.completion_depth += number(queue, "depth");
  }
  return device;
}

}  // namespace weft::cli
