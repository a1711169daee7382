// The output of `weft dissect`: text, JSON lines, or CSV.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "capture/filter/filter.h"
#include "capture/report/exchange_times.h"
#include "weft/capture/analysis.hpp"
#include "weft/capture/finding.hpp"
#include "weft/capture/management.hpp"
#include "weft/capture/operation.hpp"
#include "weft/capture/quality.hpp"
#include "weft/capture/rpc.hpp"
#include "weft/capture/rpc_tracker.hpp"
#include "weft/capture/statistics.hpp"
#include "weft/capture/storage_tracker.hpp"

namespace weft::capture {

// Selects what is shown, never what is reassembled. docs/dissect.md has a table.
struct Selection {
  std::optional<std::uint32_t> connection;  // numbered from 1
  std::optional<std::uint32_t> queue_pair;  // of either side
  // A key of operations, of chunk lists of RPCs, of storage commands, or of findings.
  std::optional<std::uint32_t> key;
  std::optional<Operation::Kind> kind;  // kind of operations
  std::optional<std::uint32_t> xid;     // XID of RPCs, and of findings about them
  // Time range since the first frame. An exchange is selected if it began in the range, a
  // finding if one of its frames is in the range.
  std::optional<std::int64_t> from_ns;
  std::optional<std::int64_t> to_ns;
  std::optional<Filter> filter;
  // With a filter: the connections of which something was selected. They are shown even if the
  // filter does not select them themselves.
  std::unordered_set<ConnectionId> with_selected{};

  // Selects by number and queue pair.
  [[nodiscard]] bool takes(const Connection& connection) const;
  // Selects a connection as a whole, and not only a part of its exchanges.
  [[nodiscard]] bool takes_whole(const Connection& connection, const Analysis& analysis) const;
  [[nodiscard]] bool takes_time(std::int64_t time_ns, const Analysis& analysis) const;
  // Selects by number, queue pair, time (the connection had frames in the range) and filter.
  [[nodiscard]] bool shows(const Connection& connection, const Analysis& analysis) const;
  [[nodiscard]] bool takes(const Operation& operation, const Analysis& analysis) const;
  [[nodiscard]] bool takes(const Rpc& rpc, const Analysis& analysis) const;
  [[nodiscard]] bool takes(const StorageCommand& command, const Analysis& analysis) const;
  [[nodiscard]] bool takes(const ManagementDatagram& datagram, const Analysis& analysis) const;
  [[nodiscard]] bool takes(const Finding& finding, const Analysis& analysis) const;
  // The same for a message that is extracted, of which latency and outcome are not known.
  [[nodiscard]] bool takes_message(const Operation& message, const Analysis& analysis) const;
  // Remembers that something of the connection was selected.
  void note(ConnectionId selected) {
    if (filter) with_selected.insert(selected);
  }

 private:
  [[nodiscard]] bool overlaps(const Connection& connection, const Analysis& analysis) const;
  [[nodiscard]] bool takes_but_filter(const Operation& operation, const Analysis& analysis) const;
};

// The results that a report shows at the end.
struct Results {
  const Analysis& analysis;
  const Statistics& statistics;
  const RpcTracker& rpcs;
  const StorageTracker& storage;
  std::uint64_t findings = 0;  // number of selected findings
  CaptureQuality quality{};
  const ExchangeTimes* times = nullptr;  // nullptr: not collected
};

struct ReportOptions {
  bool operations = false;  // print one line for each
  bool connections = false;
  bool rpcs = false;
  bool commands = false;  // of storage protocols
  bool findings = false;
  bool management = false;  // management datagrams of InfiniBand
  bool summary = true;
  bool colours = false;
  std::size_t slowest = 0;  // number of exchanges whose story is printed
  std::string name;         // name of the input
};

class Report {
 public:
  // Receives the text in pieces of any size.
  using Write = std::function<void(std::string_view)>;

  Report(const ReportOptions& options, Write write) : options_(options), write_(std::move(write)) {}
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;
  virtual ~Report() = default;

  virtual void begin() {}
  virtual void operation(const Operation& operation, const Analysis& analysis) = 0;
  virtual void rpc(const Rpc& rpc, const Analysis& analysis) = 0;
  virtual void command(const StorageCommand& command, const Analysis& analysis) = 0;
  virtual void finding(const Finding& finding, const Analysis& analysis) = 0;
  // A finding that is not final yet: at the end it comes again, as it is then.
  virtual void finding_so_far(const Finding& finding, const Analysis& analysis) {
    this->finding(finding, analysis);
  }
  // Reports that cannot list management datagrams leave them out.
  virtual void management(const ManagementDatagram& /*datagram*/, const Analysis& /*analysis*/) {}
  // Reports a selected connection that is forgotten before the end.
  virtual void forgotten(const Connection& connection, const Results& results) = 0;
  // Ends the report. `selection` decides which connections are shown.
  virtual void finish(const Results& results, const Selection& selection) = 0;
  // Passes on the text that was written so far.
  void flush() {
    if (out_.size() == 0) return;
    write_({out_.data(), out_.size()});
    out_.clear();
  }

 protected:
  void flush_if_full() {
    constexpr std::size_t full_bytes = 64 * 1024;
    if (out_.size() >= full_bytes) flush();
  }
  [[nodiscard]] const ReportOptions& options() const { return options_; }
  [[nodiscard]] fmt::memory_buffer& out() { return out_; }
  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

 private:
  ReportOptions options_;
  Write write_;
  fmt::memory_buffer out_;
};

[[nodiscard]] std::unique_ptr<Report> text_report(const ReportOptions& options,
                                                  Report::Write write);
[[nodiscard]] std::unique_ptr<Report> json_report(const ReportOptions& options,
                                                  Report::Write write);
[[nodiscard]] std::unique_ptr<Report> csv_report(const ReportOptions& options, Report::Write write);

// Returns the number with which a connection is shown: they begin at 1.
[[nodiscard]] inline std::uint64_t shown_number(ConnectionId id) {
  return std::uint64_t{id} + 1;
}

}  // namespace weft::capture
