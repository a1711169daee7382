#include "check/report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "base/log.h"
#include "check/json.h"
#include "provider/traced_calls.h"

namespace weft::check {
namespace {

// Another process of the same program may write its own report at the same time.
Descriptor open_locked(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644));
  if (!file.valid() || flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  errno = EWOULDBLOCK;
  return {};
}

Descriptor open_report(const std::string& path) {
  Descriptor file = open_locked(path);
  if (!file.valid() && errno == EWOULDBLOCK) {
    file = open_locked(fmt::format("{}.{}", path, getpid()));
  }
  if (!file.valid()) {
    log(LogLevel::error, "check",
        fmt::format("WEFT_CHECK_REPORT={}: cannot be written: {}", path, std::strerror(errno)));
  }
  return file;
}

}  // namespace

Reporter::Reporter(Options options, Stacks& stacks)
    : options_(std::move(options)), stacks_(stacks) {
  if (!options_.report_path.empty()) file_ = open_report(options_.report_path);
  if (!options_.suppressions_path.empty()) {
    const std::string wrong = suppressions_.read(options_.suppressions_path);
    if (!wrong.empty()) log(LogLevel::error, "check", "WEFT_CHECK_SUPPRESSIONS: " + wrong);
  }
}

bool Reporter::is_known(const Finding& finding) {
  const StackId first = finding.places.empty() ? 0 : finding.places.front().stack;
  const auto [entry, is_new] =
      known_.try_emplace({finding.rule, first}, static_cast<int>(printed_.size()));
  if (is_new) return false;
  if (entry->second >= 0) ++printed_[static_cast<std::size_t>(entry->second)].times;
  return true;
}

void Reporter::report(const Finding& finding) {
  const int saved = errno;
  {
    const std::lock_guard lock(mutex_);
    if (is_known(finding)) return;
    Printed printed{.finding = finding, .stacks = {}};
    for (const Place& place : finding.places) {
      printed.stacks.push_back(frames_of(stacks_.get(place.stack)));
    }
    if (suppressions_.covers(text_of(finding.rule).name, printed.stacks)) {
      const StackId first = finding.places.empty() ? 0 : finding.places.front().stack;
      known_[{finding.rule, first}] = -1;
      return;
    }
    printed_.push_back(std::move(printed));
    print(printed_.back());
    write_json();
    if (options_.fatal) {
      std::fflush(nullptr);
      _exit(options_.exit_status.value_or(fatal_status));
    }
  }
  errno = saved;
}

void Reporter::print(const Printed& printed) const {
  const RuleText& rule = text_of(printed.finding.rule);
  provider::mark_trace("check", fmt::format("{}: {}", rule.name, printed.finding.what));
  std::string text = fmt::format("check [{}]: {} (process {})\n  {}\n", rule.name, rule.title,
                                 getpid(), printed.finding.what);
  for (std::size_t i = 0; i < printed.stacks.size(); ++i) {
    text += fmt::format("  {}:\n", printed.finding.places[i].what);
    std::size_t number = 0;
    for (const Frame& frame : printed.stacks[i]) {
      text += fmt::format("    #{} {}\n", number++, to_string(frame));
    }
    if (printed.stacks[i].empty()) text += "    (not known)\n";
  }
  text += fmt::format("  Rule: {}\n  On hardware: {}", rule.source, rule.hardware);
  log(LogLevel::warning, "check", text);
}

// The whole document each time, so that it is complete also if the process is killed.
void Reporter::write_json() {
  if (in_child_ && !file_.valid() && !printed_.empty() && !options_.report_path.empty()) {
    file_ = open_report(fmt::format("{}.{}", options_.report_path, getpid()));
  }
  if (!file_.valid()) return;
  std::string text = fmt::format("{{\"process\": {}, \"findings\": [", getpid());
  for (std::size_t i = 0; i < printed_.size(); ++i) {
    const Printed& printed = printed_[i];
    JsonFinding finding{.rule = text_of(printed.finding.rule),
                        .what = printed.finding.what,
                        .times = printed.times,
                        .stacks = {}};
    for (std::size_t at = 0; at < printed.stacks.size(); ++at) {
      finding.stacks.push_back({printed.finding.places[at].what, &printed.stacks[at]});
    }
    text += (i == 0 ? "\n" : ",\n") + to_json(finding);
  }
  text += "\n]}\n";
  const bool written =
      ftruncate(file_.get(), 0) == 0 &&
      pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!written) {
    log(LogLevel::error, "check",
        fmt::format("the report cannot be written: {}", std::strerror(errno)));
    file_ = {};
  }
}

// The parent's file is opened again by the first finding only: most children execute another
// program.
void Reporter::after_fork_in_child() {
  printed_.clear();
  known_.clear();
  file_ = {};
  in_child_ = true;
  mutex_.unlock();
}

int Reporter::finish() {
  const std::lock_guard lock(mutex_);
  write_json();
  std::uint64_t repeated = 0;
  for (const Printed& printed : printed_) repeated += printed.times - 1;
  if (printed_.empty()) return -1;
  std::string text = fmt::format("check: {} finding{} in process {}", printed_.size(),
                                 printed_.size() == 1 ? "" : "s", getpid());
  if (repeated > 0) {
    text += fmt::format(", and {} more at the same places", repeated);
  }
  log(LogLevel::warning, "check", text);
  return options_.exit_status.value_or(-1);
}

}  // namespace weft::check
