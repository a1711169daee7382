#include "capture/report/report_html.h"

#include <algorithm>
#include <numeric>

#include "capture/page/page.h"
#include "capture/report/report_json.h"
#include "capture/text/units.h"

namespace weft::capture {
namespace {

// The percentiles at which the latency curves of the page have their points.
constexpr double percents[] = {0,  1,  2,  5,  10, 15, 20, 25,   30, 35, 40,   45,   50,    55, 60,
                               65, 70, 75, 80, 85, 90, 95, 97.5, 98, 99, 99.5, 99.9, 99.99, 100};

std::uint64_t bytes_of(const ConnectionStatistics& statistics) {
  std::uint64_t bytes = 0;
  for (const Side side : {Side::a, Side::b}) {
    for (const KindStatistics& kind : statistics.of(side).kinds) bytes += kind.bytes;
  }
  return bytes;
}

std::uint64_t count_of(const ConnectionStatistics& statistics) {
  std::uint64_t count = 0;
  for (const Side side : {Side::a, Side::b}) {
    for (const KindStatistics& kind : statistics.of(side).kinds) count += kind.count;
  }
  return count;
}

// Returns the JSON object of a connection without the line end.
std::string connection_row(const Connection& connection, const Results& results) {
  fmt::memory_buffer made;
  write_connection_json(made, connection, results);
  return {made.data(), made.size() - 1};
}

int number_of(Side side) {
  return side == Side::a ? 0 : 1;
}

// Writes an operation as a row of numbers. The page looks the names of kinds and outcomes up in its
// tables `kinds` and `outcomes`.
void write_operation(JsonLine& line, const PageOperation& operation, std::int64_t origin_ns) {
  line.row().item(static_cast<int>(operation.kind)).item(number_of(operation.side));
  line.item(static_cast<int>(operation.outcome)).item(operation.bytes);
  line.item(operation.start.time_ns - origin_ns).item(operation.end.time_ns - origin_ns);
  line.item(operation.confirmation.frame == 0 ? -1 : operation.confirmation.time_ns - origin_ns);
  line.item(operation.start.frame).item(operation.end.frame).item(operation.confirmation.frame);
  line.item(operation.key).close(']');
}

// Writes an exchange. The strings come from the wire (file names), so their length is limited and
// control characters are escaped.
void write_exchange(JsonLine& line, const PageExchange& exchange, std::int64_t origin_ns) {
  constexpr std::size_t most_characters = 200;
  line.element().text("title", exchange.title.substr(0, most_characters));
  line.text("detail", printable(exchange.detail.substr(0, most_characters)));
  line.text("outcome", exchange.outcome).boolean("good", exchange.good);
  line.boolean("call", exchange.call).number("side", number_of(exchange.side));
  line.number("frame", exchange.start.frame).number("start", exchange.start.time_ns - origin_ns);
  line.number("latency", exchange.latency_ns).array("operations");
  for (const PageOperation& operation : exchange.operations) {
    write_operation(line, operation, origin_ns);
  }
  line.close(']').close();
}

void write_series(JsonLine& line, const char* name, const TimeSeries& series) {
  line.array(name);
  for (std::size_t i = 0; i < series.size(); ++i) line.item(series[i]);
  line.close(']');
}

void write_latencies(JsonLine& line, const ConnectionStatistics& statistics) {
  line.array("latencies");
  for (const Side side : {Side::a, Side::b}) {
    const auto& kinds = statistics.of(side).kinds;
    for (std::size_t kind = 0; kind < operation_kinds; ++kind) {
      const Histogram& latency = kinds[kind].latency;
      if (latency.count() == 0) continue;
      line.element().number("kind", kind).number("side", number_of(side));
      line.number("count", latency.count()).array("ns");
      for (const double percent : percents) line.item(latency.percentile(percent));
      line.close(']').close();
    }
  }
  line.close(']');
}

// Calls `write` for every n-th item, so that it is called for at most `limit` of them.
template <typename T>
void for_thinned(const std::vector<T>& items, std::size_t limit, const auto& write) {
  if (limit == 0) return;
  const std::size_t stride = std::max<std::size_t>(1, (items.size() + limit - 1) / limit);
  for (std::size_t i = 0; i < items.size(); i += stride) write(items[i]);
}

void write_operations(JsonLine& line, const std::vector<PageOperation>& operations,
                      std::size_t limit, std::int64_t origin_ns) {
  for_thinned(operations, limit,
              [&](const PageOperation& one) { write_operation(line, one, origin_ns); });
}

// Writes the table of where the time went.
void write_procedures(JsonLine& line, const ExchangeTimes& times) {
  line.array("procedures");
  for (const ProcedureTimes* one : times.procedures()) {
    line.element().text("name", one->name).number("count", one->latency.count());
    line.number("failed", one->failed);
    line.number("p50", one->latency.percentile(50)).number("p90", one->latency.percentile(90));
    line.number("p99", one->latency.percentile(99)).number("max", one->latency.max());
    line.number("total", one->total_ns);
    const TimeParts& parts = one->parts;
    line.number("transfer", parts.transfer_ns).number("server", parts.server_ns);
    line.number("waits", parts.receives_ns).number("held", parts.held_ns());
    line.number("credits", parts.credits_ns).number("queue", parts.queue_ns);
    line.number("slots", parts.slots_ns).number("repeats", parts.repeats_ns);
    line.number("client", parts.client_ns).close();
  }
  line.close(']');
}

}  // namespace

HtmlReport::HtmlReport(const ReportOptions& options, const Analysis& analysis, Write write)
    : Report(options, std::move(write)), analysis_(analysis) {}

// Returns the details of a connection, or nullptr for connections beyond the first max_detailed
// ones.
HtmlReport::Detail* HtmlReport::detail(ConnectionId connection) {
  const auto found = details_.find(connection);
  if (found != details_.end()) return found->second.get();
  if (details_.size() == max_detailed) return nullptr;
  return details_.emplace(connection, std::make_unique<Detail>()).first->second.get();
}

// Adds the bytes to the throughput of the sender. Both series begin with the first message of the
// connection.
void HtmlReport::on_progress(const Origin& origin, std::uint64_t bytes) {
  if (bytes == 0) return;
  Detail* detail = this->detail(origin.connection);
  if (detail == nullptr) return;
  TimeSeries& series = origin.side == Side::a ? detail->carried_a : detail->carried_b;
  if (!detail->first_ns) detail->first_ns = origin.stamp.time_ns;
  series.add(origin.stamp.time_ns - *detail->first_ns, bytes);
}

void HtmlReport::mark(const Origin& origin, Trouble trouble) {
  Detail* detail = this->detail(origin.connection);
  if (detail == nullptr) return;
  detail->marks[static_cast<std::size_t>(trouble)].add({origin.stamp, origin.side});
}

void HtmlReport::on_repeat(const Origin& origin, std::uint64_t /*wire_bytes*/) {
  mark(origin, Trouble::repeat);
}

void HtmlReport::on_refusal(const Origin& origin, const Refusal& refusal) {
  using Kind = Refusal::Kind;
  mark(origin, refusal.kind == Kind::receiver_not_ready ? Trouble::not_ready
               : refusal.kind == Kind::sequence_error   ? Trouble::sequence_error
                                                        : Trouble::refusal);
}

// Bytes that the snap length cut were on the wire and in the capture.
void HtmlReport::on_gap(const Origin& origin, const Gap& gap) {
  if (!gap.cut) mark(origin, Trouble::gap);
}

// Keeps the operation for the timeline; failed ones have a list of their own, so that thinning
// cannot remove them all.
void HtmlReport::operation(const Operation& operation, const Analysis& /*analysis*/) {
  Detail* detail = this->detail(operation.connection);
  if (detail == nullptr) return;
  const PageOperation kept(operation);
  (kept.good() ? detail->operations : detail->failed).add(kept);
  exchanges_.add(operation);
}

void HtmlReport::rpc(const Rpc& rpc, const Analysis& /*analysis*/) {
  exchanges_.add(rpc);
}

void HtmlReport::command(const StorageCommand& command, const Analysis& /*analysis*/) {
  exchanges_.add(command);
}

// Keeps a limited number of findings. Keys are not shown, so they are dropped.
void HtmlReport::finding(const Finding& finding, const Analysis& /*analysis*/) {
  if (findings_.size() == max_findings) return;
  findings_.push_back(finding);
  findings_.back().keys = {};
}

// Keeps what the page shows of a connection that the analysis forgets. To save time the list is cut
// only when it is twice too long.
void HtmlReport::forgotten(const Connection& connection, const Results& results) {
  const ConnectionStatistics& statistics = results.statistics.of(connection.id);
  Forgotten& kept = forgotten_[connection.id];
  kept.bytes = bytes_of(statistics);
  kept.row = connection_row(connection, results);
  if (details_.contains(connection.id)) {
    kept.statistics = std::make_unique<ConnectionStatistics>(statistics);
  }
  if (forgotten_.size() > 2 * max_rows) keep_largest_forgotten();
}

void HtmlReport::keep_largest_forgotten() {
  std::vector<std::pair<std::uint64_t, ConnectionId>> order;
  for (const auto& [id, kept] : forgotten_) order.emplace_back(kept.bytes, id);
  const auto end = order.end() - static_cast<std::ptrdiff_t>(max_rows);
  // This puts the smallest ones before `end`, and those are removed.
  std::nth_element(order.begin(), end, order.end());
  for (auto one = order.begin(); one != end; ++one) forgotten_.erase(one->second);
}

// Returns the statistics of a connection; for a forgotten one those that were kept.
const ConnectionStatistics& HtmlReport::statistics_of(ConnectionId id,
                                                      const Results& results) const {
  const auto kept = forgotten_.find(id);
  if (kept != forgotten_.end() && kept->second.statistics) return *kept->second.statistics;
  return results.statistics.of(id);
}

void HtmlReport::finish(const Results& results, const Selection& selection) {
  exchanges_.finish();
  fmt::memory_buffer data;
  JsonLine line(data);
  write_data(line, results, selection);
  line.end();
  print("{}", page::before_data);
  // Inside a script element nothing may look like a tag. In JSON "<" occurs only in strings, where
  // it can be escaped.
  for (const char character : std::string_view(data.data(), data.size())) {
    if (character == '<') {
      print("\\u003c");
    } else {
      out().push_back(character);
    }
    flush_if_full();
  }
  print("{}", page::after_data);
  flush();
}

std::vector<ConnectionId> HtmlReport::choose_rows(const Results& results,
                                                  const Selection& selection) const {
  std::vector<std::pair<std::uint64_t, ConnectionId>> sized;
  for (const auto& [id, kept] : forgotten_) sized.emplace_back(kept.bytes, id);
  for (const Connection& one : results.analysis.connections()) {
    if (selection.shows(one, results.analysis))
      sized.emplace_back(bytes_of(results.statistics.of(one.id)), one.id);
  }
  if (sized.size() > max_rows) {
    std::ranges::stable_sort(sized, std::greater{}, [](const auto& one) { return one.first; });
    sized.resize(max_rows);
  }
  std::vector<ConnectionId> rows;
  for (const auto& [bytes, id] : sized) rows.push_back(id);
  // The size decides only which rows stay; the page shows them in the order of their numbers.
  std::ranges::sort(rows);
  return rows;
}

// Connections with few operations leave room for the others, so shares are assigned from the
// smallest to the largest.
std::size_t HtmlReport::operations_of_each(const std::vector<ConnectionId>& rows) const {
  std::vector<std::size_t> counts;
  for (const ConnectionId id : rows) {
    const auto found = details_.find(id);
    if (found != details_.end()) counts.push_back(found->second->operations.items().size());
  }
  std::ranges::sort(counts);
  std::size_t room = operations_of_all;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t share = room / (counts.size() - i);
    if (counts[i] > share) return share;
    room -= counts[i];
  }
  return operations_of_one;
}

void HtmlReport::write_data(JsonLine& line, const Results& results,
                            const Selection& selection) const {
  fmt::memory_buffer made;
  write_trace_json(made, printable(options().name), results);
  line.array("trace").made({made.data(), made.size() - 1});  // without the line end
  made.clear();
  write_capture_json(made, results);
  line.close(']').array("capture").made({made.data(), made.size() - 1});
  line.close(']').array("connections");
  const std::vector<ConnectionId> rows = choose_rows(results, selection);
  for (const ConnectionId id : rows) {
    const auto kept = forgotten_.find(id);
    line.made(kept != forgotten_.end()
                  ? kept->second.row
                  : connection_row(results.analysis.connections()[id], results));
  }
  line.close(']').array("percents");
  for (const double percent : percents) line.made(fmt::format("{}", percent));
  line.close(']').array("details");
  const std::size_t detailed = std::max<std::size_t>(1, std::min(rows.size(), details_.size()));
  const Shares shares{.operations = operations_of_each(rows),
                      .exchanges = std::clamp<std::size_t>(exchanges_of_all / detailed, 1,
                                                           3 * PageExchanges::of_a_kind),
                      .marks = std::min(marks_of_one, marks_of_all / detailed / trouble_kinds)};
  for (const ConnectionId id : rows) {
    if (details_.contains(id)) write_detail(line, id, results, shares);
  }
  line.close(']');
  if (results.times != nullptr) write_procedures(line, *results.times);
  write_findings(line);
}

void HtmlReport::write_detail(JsonLine& line, ConnectionId id, const Results& results,
                              const Shares& shares) const {
  const Detail& detail = *details_.at(id);
  const std::int64_t origin_ns = analysis_.totals().first_ns;
  // Both series must use buckets of the same width.
  TimeSeries a = detail.carried_a;
  TimeSeries b = detail.carried_b;
  a.widen_to(b.width_ns());
  b.widen_to(a.width_ns());
  line.element().number("connection", shown_number(id));
  line.number("from", detail.first_ns.value_or(origin_ns) - origin_ns);
  line.number("bucket_ns", a.width_ns());
  write_series(line, "a", a);
  write_series(line, "b", b);
  const ConnectionStatistics& statistics = statistics_of(id, results);
  write_latencies(line, statistics);
  line.number("count", count_of(statistics)).array("operations");
  write_operations(line, detail.operations.items(), shares.operations, origin_ns);
  write_operations(line, detail.failed.items(), shares.operations, origin_ns);
  line.close(']').array("marks");
  for (std::size_t kind = 0; kind < trouble_kinds; ++kind) {
    for_thinned(detail.marks[kind].items(), shares.marks, [&](const Mark& mark) {
      line.row().item(kind).item(number_of(mark.side)).item(mark.stamp.time_ns - origin_ns);
      line.item(mark.stamp.frame).close(']');
    });
  }
  line.close(']').array("exchanges");
  for (const PageExchange* exchange : exchanges_.of(id, shares.exchanges)) {
    write_exchange(line, *exchange, origin_ns);
  }
  line.close(']').close();
}

void HtmlReport::write_findings(JsonLine& line) const {
  const std::int64_t origin_ns = analysis_.totals().first_ns;
  line.array("findings");
  for (const Finding& finding : findings_) {
    line.element().text("kind", finding.kind);
    line.text("severity", to_string(severity_of(finding)));
    line.number("connection", shown_number(finding.connection));
    line.text("sentence", finding.sentence).array("frames");
    for (const Stamp& stamp : finding.stamps) line.item(stamp.frame);
    line.close(']').array("times");
    for (const Stamp& stamp : finding.stamps) line.item(stamp.time_ns - origin_ns);
    line.close(']').close();
  }
  line.close(']');
}

}  // namespace weft::capture
