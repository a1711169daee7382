// What `weft dissect` shows while it reads an interface or a file that grows: findings as they
// come, and on a terminal a summary of the last second that is replaced by the next one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "capture/report/report.h"
#include "cli/dissect_output.h"
#include "cli/standard_output.h"

namespace weft::cli {

class LiveView {
 public:
  enum class Form : std::uint8_t {
    nothing,        // the report lists something else, or cannot say what is not final
    findings,       // as they come
    with_json,      // and a line of JSON for each second
    with_lines,     // and a line of text for each second in which something came
    with_overview,  // and a table on the terminal
  };
  // All must outlive this object. `name` is that of the input.
  LiveView(Form form, DissectOutput& output, capture::Report& report, StandardOutput& out,
           const capture::Analysis& analysis, const std::string& name);
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;
  ~LiveView();

  // Call it after each packet. It reads the clock for one packet in many.
  void on_packet() {
    constexpr std::uint64_t packets_for_a_look = 256;
    if (form_ != Form::nothing && ++packets_ % packets_for_a_look == 0) refresh_if_due();
  }
  // Call it when there is no packet.
  void on_pause() {
    if (form_ != Form::nothing) refresh_if_due();
  }
  // Removes the overview from the terminal, before other text is printed. Nothing is shown after
  // it. As the functions above it throws if standard output cannot be written.
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  struct Sums {
    std::uint64_t operations = 0;
    std::uint64_t bytes = 0;
  };
  struct Row {
    capture::ConnectionId connection = 0;
    Sums last_second;
  };

  void refresh_if_due();
  void refresh(double seconds);
  void erase();
  void draw(double seconds);
  void write_json();
  void write_line(double seconds);
  [[nodiscard]] std::string title(double seconds);
  // The connections with the most traffic since the last call come first.
  [[nodiscard]] std::vector<Row> busiest();
  [[nodiscard]] std::string row_text(const Row& row, double seconds) const;

  Form form_;
  DissectOutput& output_;
  capture::Report& report_;
  StandardOutput& out_;
  const capture::Analysis& analysis_;
  std::string name_;
  std::uint64_t packets_ = 0;
  Clock::time_point begun_ = Clock::now();
  Clock::time_point last_ = begun_;
  std::uint64_t frames_before_ = 0;
  std::uint64_t bytes_before_ = 0;
  std::map<capture::ConnectionId, Sums> before_;
  std::size_t lines_ = 0;  // of the overview on the terminal
};

}  // namespace weft::cli
