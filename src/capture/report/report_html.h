// A report as one complete page for a browser: connections, findings, a timeline of operations,
// throughput and latency, and sequence diagrams of chosen exchanges. Its size is bounded, and it
// states what it leaves out; docs/dissect.md has the limits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/report/page_exchanges.h"
#include "capture/report/report.h"
#include "capture/report/thinned_list.h"
#include "capture/text/json_line.h"
#include "weft/capture/progress_sink.hpp"

namespace weft::capture {

class HtmlReport final : public Report, public ProgressSink {
 public:
  // Connections with details. Of those after them only a row in the table is kept.
  static constexpr std::size_t max_detailed = 256;
  static constexpr std::size_t max_rows = 1000;
  static constexpr std::size_t max_findings = 1500;
  // Limits of operations: in memory for one connection, and in the page for all.
  static constexpr std::size_t operations_of_one = 3000;
  static constexpr std::size_t operations_of_all = 30'000;
  static constexpr std::size_t exchanges_of_all = 400;
  // Marks of trouble in the plots: in memory of one kind of one connection, and in the page for
  // all.
  static constexpr std::size_t marks_of_one = 100;
  static constexpr std::size_t marks_of_all = 20'000;

  // `analysis` must outlive the report.
  HtmlReport(const ReportOptions& options, const Analysis& analysis, Write write);

  void on_repeat(const Origin& origin, std::uint64_t wire_bytes) override;
  void on_refusal(const Origin& origin, const Refusal& refusal) override;
  void on_gap(const Origin& origin, const Gap& gap) override;

  void operation(const Operation& operation, const Analysis& analysis) override;
  void rpc(const Rpc& rpc, const Analysis& analysis) override;
  void command(const StorageCommand& command, const Analysis& analysis) override;
  void finding(const Finding& finding, const Analysis& analysis) override;
  void forgotten(const Connection& connection, const Results& results) override;
  void finish(const Results& results, const Selection& selection) override;

 private:
  // What a plot marks. The page looks the names up in its table `troubles`, in this order.
  enum class Trouble : std::uint8_t { repeat, not_ready, sequence_error, refusal, gap };
  static constexpr std::size_t trouble_kinds = 5;
  struct Mark {
    Stamp stamp;
    Side side = Side::a;
  };
  using Marks = ThinnedList<Mark>;
  struct Detail {
    std::optional<std::int64_t> first_ns;  // time of the first message: both series begin there
    TimeSeries carried_a;                  // bytes of messages by sender
    TimeSeries carried_b;
    ThinnedList<PageOperation> operations{operations_of_one};
    ThinnedList<PageOperation> failed{operations_of_one / 8};
    std::array<Marks, trouble_kinds> marks{Marks(marks_of_one), Marks(marks_of_one),
                                           Marks(marks_of_one), Marks(marks_of_one),
                                           Marks(marks_of_one)};
  };

  // What the page shows of a forgotten connection.
  struct Forgotten {
    std::uint64_t bytes = 0;
    std::string row;
    std::unique_ptr<ConnectionStatistics> statistics;  // set if there are details
  };

  [[nodiscard]] Detail* detail(ConnectionId connection);
  void on_progress(const Origin& origin, std::uint64_t bytes) override;
  void mark(const Origin& origin, Trouble trouble);
  void keep_largest_forgotten();
  [[nodiscard]] const ConnectionStatistics& statistics_of(ConnectionId id,
                                                          const Results& results) const;
  // Returns the connections in the table: if there are too many, those with the most bytes.
  [[nodiscard]] std::vector<ConnectionId> choose_rows(const Results& results,
                                                      const Selection& selection) const;
  // Returns a limit for each connection, so that all together have at most operations_of_all.
  [[nodiscard]] std::size_t operations_of_each(const std::vector<ConnectionId>& rows) const;
  void write_data(JsonLine& line, const Results& results, const Selection& selection) const;
  // How many of each a connection may have in the page.
  struct Shares {
    std::size_t operations = 0;
    std::size_t exchanges = 0;
    std::size_t marks = 0;  // of each kind
  };
  void write_detail(JsonLine& line, ConnectionId id, const Results& results,
                    const Shares& shares) const;
  void write_findings(JsonLine& line) const;

  const Analysis& analysis_;
  std::unordered_map<ConnectionId, std::unique_ptr<Detail>> details_;
  PageExchanges exchanges_;
  std::vector<Finding> findings_;
  std::map<ConnectionId, Forgotten> forgotten_;
};

}  // namespace weft::capture
