#include "cli/live_view.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "capture/text/json_line.h"
#include "capture/text/units.h"

namespace weft::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto interval = 1s;
constexpr std::size_t most_rows = 12;
constexpr std::size_t other_lines = 3;  // title, head, and the line of the cursor

struct Size {
  std::size_t lines = 24;
  std::size_t columns = 80;
};

Size terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    return {};
  }
  return {size.ws_row, size.ws_col};
}

// Cuts a line of UTF-8 to a number of characters: a line that wraps could not be erased.
std::string cut(std::string line, std::size_t characters) {
  std::size_t seen = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(line[at]) & 0xC0) != 0x80;
    if (begins && seen++ == characters) {
      line.resize(at);
      break;
    }
  }
  return line;
}

std::uint64_t per_second(std::uint64_t amount, double seconds) {
  return static_cast<std::uint64_t>(static_cast<double>(amount) / std::max(seconds, 1e-3));
}

}  // namespace

LiveView::LiveView(Form form, DissectOutput& output, capture::Report& report, StandardOutput& out,
                   const capture::Analysis& analysis, const std::string& name)
    : form_(form),
      output_(output),
      report_(report),
      out_(out),
      analysis_(analysis),
      name_(name.substr(name.rfind('/') + 1)) {
  if (form_ == Form::nothing) return;
  output_.show_at_once([this](const capture::Finding& finding) {
    erase();
    report_.finding(finding, analysis_);
  });
}

// The overview is still there if an error has ended the reading. The output may be that error.
LiveView::~LiveView() {
  try {
    end();
  } catch (const std::exception&) {
  }
}

void LiveView::end() {
  if (form_ == Form::nothing) return;
  form_ = Form::nothing;
  output_.show_at_once({});
  erase();
}

void LiveView::refresh_if_due() {
  const auto now = Clock::now();
  if (now - last_ < interval) return;
  refresh(std::chrono::duration<double>(now - last_).count());
  last_ = now;
}

void LiveView::refresh(double seconds) {
  erase();
  output_.show_news(
      [this](const capture::Finding& finding) { report_.finding_so_far(finding, analysis_); });
  report_.flush();
  if (form_ == Form::with_json) write_json();
  if (form_ == Form::with_lines) write_line(seconds);
  if (form_ == Form::with_overview) draw(seconds);
  out_.flush();
}

// The cursor is below the last line. "\033[J" erases everything from there on.
void LiveView::erase() {
  if (const std::size_t lines = std::exchange(lines_, 0); lines > 0) {
    out_.write(fmt::format("\033[{}A\r\033[J", lines));
  }
}

void LiveView::draw(double seconds) {
  const Size size = terminal_size();
  std::vector<std::string> lines{title(seconds) + "; Ctrl-C ends it"};
  const std::vector<Row> rows = busiest();
  if (!rows.empty()) {
    lines.push_back(fmt::format("{:>5} {:>9} {:>12} {:>10}  {}", "conn.", "oper./s", "bytes/s",
                                "p99", "between"));
  }
  const std::size_t room = std::min(most_rows, size.lines - std::min(size.lines, other_lines));
  for (std::size_t i = 0; i < std::min(rows.size(), room); ++i) {
    lines.push_back(row_text(rows[i], seconds));
  }
  for (const std::string& line : lines) out_.write(cut(line, size.columns) + "\n");
  lines_ = lines.size();
}

std::string LiveView::title(double seconds) {
  const auto& totals = analysis_.totals();
  const std::uint64_t frames = totals.frames - std::exchange(frames_before_, totals.frames);
  const std::uint64_t bytes = totals.wire_bytes - std::exchange(bytes_before_, totals.wire_bytes);
  const auto since = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begun_);
  // Short enough for 80 columns, where the name is not long.
  return fmt::format("{}, {} s: {} ({}/s), {} ({}/s)", name_, since.count(),
                     capture::count_text(totals.frames, "frame"), per_second(frames, seconds),
                     capture::bytes_text(totals.wire_bytes),
                     capture::bytes_text(per_second(bytes, seconds)));
}

std::vector<LiveView::Row> LiveView::busiest() {
  const capture::Results results = output_.results();
  std::vector<Row> rows;
  std::map<capture::ConnectionId, Sums> now;
  for (const capture::Connection& connection : analysis_.connections()) {
    if (!output_.shows(connection)) continue;
    const capture::ConnectionStatistics& statistics = results.statistics.of(connection.id);
    Sums& sums = now[connection.id];
    for (const capture::Side side : {capture::Side::a, capture::Side::b}) {
      for (const capture::KindStatistics& kind : statistics.of(side).kinds) {
        sums.operations += kind.count;
        sums.bytes += kind.bytes;
      }
    }
    const Sums& old = before_[connection.id];
    rows.push_back({connection.id, {sums.operations - old.operations, sums.bytes - old.bytes}});
  }
  before_ = std::move(now);
  std::ranges::stable_sort(rows, std::greater{}, [](const Row& row) {
    return std::pair(row.last_second.bytes, row.last_second.operations);
  });
  return rows;
}

std::string LiveView::row_text(const Row& row, double seconds) const {
  using capture::Side;
  const capture::Connection& connection = analysis_.connections()[row.connection];
  const capture::ConnectionStatistics& statistics = output_.results().statistics.of(row.connection);
  std::uint64_t p99_ns = 0;
  for (const Side side : {Side::a, Side::b}) {
    for (const capture::KindStatistics& kind : statistics.of(side).kinds) {
      if (kind.latency.count() == 0) continue;
      p99_ns = std::max(p99_ns, static_cast<std::uint64_t>(kind.latency.percentile(99)));
    }
  }
  return fmt::format("{:>5} {:>9} {:>12} {:>10}  {} ⇄ {}", capture::shown_number(row.connection),
                     per_second(row.last_second.operations, seconds),
                     capture::bytes_text(per_second(row.last_second.bytes, seconds)) + "/s",
                     p99_ns > 0 ? capture::duration_text(static_cast<std::int64_t>(p99_ns)) : "",
                     endpoint_text(connection, Side::a), endpoint_text(connection, Side::b));
}

void LiveView::write_line(double seconds) {
  if (analysis_.totals().frames > frames_before_) out_.write(title(seconds) + "\n");
}

void LiveView::write_json() {
  const auto& totals = analysis_.totals();
  const capture::Results results = output_.results();
  fmt::memory_buffer out;
  capture::JsonLine line(out);
  line.text("type", "live").number("last_ns", totals.last_ns).number("frames", totals.frames);
  line.number("wire_bytes", totals.wire_bytes);
  line.number("connections", analysis_.connections().size());
  line.number("operations", results.statistics.operations());
  line.number("findings", results.findings).end();
  out_.write({out.data(), out.size()});
}

}  // namespace weft::cli
