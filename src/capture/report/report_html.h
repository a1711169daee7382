// One page for a browser, complete in itself: connections, findings, a timeline of operations,
// throughput and latency, and sequence diagrams of chosen exchanges. What it holds is bounded, and
// it says what it leaves out; docs/dissect.md has the limits.
#pragma once

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
  // Of connections beyond the first so many only a row in the table is kept.
  static constexpr std::size_t max_detailed = 256;
  static constexpr std::size_t max_rows = 1000;
  static constexpr std::size_t max_findings = 1500;
  // Of a connection in memory, and of all in the page.
  static constexpr std::size_t operations_of_one = 3000;
  static constexpr std::size_t operations_of_all = 30'000;
  static constexpr std::size_t exchanges_of_all = 400;

  // `analysis` must outlive it.
  HtmlReport(const ReportOptions& options, const Analysis& analysis, Write write);

  void operation(const Operation& operation, const Analysis& analysis) override;
  void rpc(const Rpc& rpc, const Analysis& analysis) override;
  void finding(const Finding& finding, const Analysis& analysis) override;
  void forgotten(const Connection& connection, const Results& results) override;
  void finish(const Results& results, const Selection& selection) override;

 private:
  struct Detail {
    std::optional<std::int64_t> first_ns;  // of the messages: where both series begin
    TimeSeries carried_a;                  // bytes of messages, by who sent them
    TimeSeries carried_b;
    ThinnedList<PageOperation> operations{operations_of_one};
    ThinnedList<PageOperation> failed{operations_of_one / 8};
  };

  // What the page shows of a connection that is forgotten.
  struct Forgotten {
    std::uint64_t bytes = 0;
    std::string row;
    std::unique_ptr<ConnectionStatistics> statistics;  // where there are details
  };

  [[nodiscard]] Detail* detail(ConnectionId connection);
  void on_progress(const Origin& origin, std::uint64_t bytes) override;
  void keep_largest_forgotten();
  [[nodiscard]] const ConnectionStatistics& statistics_of(ConnectionId id,
                                                          const Results& results) const;
  // The connections that become rows, those with the most bytes where there are too many.
  [[nodiscard]] std::vector<ConnectionId> choose_rows(const Results& results,
                                                      const Selection& selection) const;
  // So many of each connection that they are operations_of_all together.
  [[nodiscard]] std::size_t operations_of_each(const std::vector<ConnectionId>& rows) const;
  void write_data(JsonLine& line, const Results& results, const Selection& selection) const;
  void write_detail(JsonLine& line, ConnectionId id, const Results& results, std::size_t operations,
                    std::size_t exchanges) const;
  void write_findings(JsonLine& line) const;

  const Analysis& analysis_;
  std::unordered_map<ConnectionId, std::unique_ptr<Detail>> details_;
  PageExchanges exchanges_;
  std::vector<Finding> findings_;
  std::map<ConnectionId, Forgotten> forgotten_;
};

}  // namespace weft::capture
