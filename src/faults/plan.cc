#include "faults/plan.h"

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "base/log.h"
#include "faults/names.h"

namespace weft::faults {
namespace {

// SplitMix64. What is needed is that a seed gives the same numbers everywhere, not secrecy.
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = state += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

bool is_request(Point point) {
  return point == Point::send || point == Point::write || point == Point::read ||
         point == Point::atomic;
}

}  // namespace

Plan::Plan(Rules rules, std::uint64_t seed, std::uint64_t opened_ns, std::string_view process,
           bool verbose)
    : seed_(rules.seed.value_or(seed)), opened_ns_(opened_ns), verbose_(verbose) {
  // The generator of a rule depends on the seed and on the place of the rule in the list only.
  std::uint64_t generator = seed_;
  for (Rule& rule : rules.list) {
    const std::uint64_t own = next(generator);  // taken by each rule, used in this process or not
    if (!rule.process.empty() && rule.process != process) continue;
    // Only rules of this process are noted, so that a point without rules costs no lock.
    named_[static_cast<std::size_t>(rule.point)] = true;
    if (rule.point == Point::request) {
      for (const Point each : {Point::send, Point::write, Point::read, Point::atomic}) {
        named_[static_cast<std::size_t>(each)] = true;
      }
    }
    const bool request = rule.point == Point::request || is_request(rule.point);
    const bool fails = rule.action.kind == ActionKind::failure &&
                       rule.action.failure() != Failure::queue_pair_fatal;
    names_streams_ = names_streams_ || rule.point == Point::connection ||
                     rule.point == Point::arrival || (request && fails);
    rules_.push_back({.rule = std::move(rule), .generator = own});
  }
}

std::optional<Action> Plan::at(Point point, const Occurrence& occurrence) {
  const std::lock_guard lock(mutex_);
  std::optional<Action> action;
  // Every rule counts, also behind one that applies, so that rules do not move each other.
  for (State& state : rules_) {
    if (!counts_for(state, point, occurrence)) continue;
    ++state.occurrences;
    if (!chosen(state) || action) continue;
    note(state, occurrence);
    action = state.rule.action;
  }
  return action;
}

// The caller of this and of the next two functions holds the lock.
bool Plan::counts_for(State& state, Point point, const Occurrence& occurrence) const {
  const Rule& rule = state.rule;
  if (rule.point != point && !(rule.point == Point::request && is_request(point))) return false;
  if (rule.queue_pair && *rule.queue_pair != occurrence.queue_pair) return false;
  if (rule.peer && *rule.peer != occurrence.peer) return false;
  if (rule.side != Side::none && rule.side != occurrence.side) return false;
  if (point == Point::connection) return true;  // what follows belongs to its schedule
  // Bytes count from the opening of the device on, also those before the time of the rule.
  state.bytes += occurrence.bytes;
  if (rule.after_bytes > 0 && state.bytes <= rule.after_bytes) return false;
  return occurrence.now_ns - opened_ns_ >= rule.after_ns;
}

bool Plan::chosen(State& state) {
  const Rule& rule = state.rule;
  constexpr double range = 18446744073709551616.0;  // 2^64
  // The number is drawn before the other conditions are looked at, so that they do not change the
  // sequence of the draws.
  const bool drawn = rule.probability >= 1 ||
                     static_cast<double>(next(state.generator)) < rule.probability * range;
  // Faults that are still to come count as well; otherwise many connections could exceed the limit.
  if (rule.times > 0 && state.faults + state.scheduled >= rule.times) return false;
  if (rule.nth > 0 && state.occurrences != rule.nth) return false;
  if (rule.every > 0 && state.occurrences % rule.every != 0) return false;
  return drawn;
}

void Plan::note(State& state, const Occurrence& occurrence) const {
  ++state.faults;
  if (!verbose_ && !sink_) return;
  std::string text = "fault " + std::to_string(state.faults) + " of the rule \"" + state.rule.text +
                     "\" after " + std::to_string(state.occurrences) + " of its kind";
  std::array<char, 32> queue_pair{};
  if (occurrence.queue_pair != 0) {
    std::snprintf(queue_pair.data(), queue_pair.size(), ", queue pair 0x%06x",
                  occurrence.queue_pair);
  }
  text += queue_pair.data();
  if (verbose_) log(LogLevel::info, "faults", text);
  if (sink_) sink_(text);
}

// Unlike at other points, each rule that applies has its effect: a stall, and later the end.
std::vector<Plan::Scheduled> Plan::schedule(const Occurrence& connection) {
  const std::lock_guard lock(mutex_);
  std::vector<Scheduled> all;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    State& state = rules_[i];
    if (!counts_for(state, Point::connection, connection)) continue;
    ++state.occurrences;
    if (!chosen(state)) continue;
    ++state.scheduled;
    const Rule& rule = state.rule;
    all.push_back({rule.action, rule.after_ns, rule.after_bytes, i});
  }
  return all;
}

void Plan::happened(const Scheduled& scheduled, std::uint32_t queue_pair) {
  const std::lock_guard lock(mutex_);
  State& state = rules_[scheduled.rule];
  // From here on the fault counts as one that has happened, in note().
  --state.scheduled;
  note(state, {.queue_pair = queue_pair});
}

std::vector<Plan::Event> Plan::events() const {
  const std::lock_guard lock(mutex_);
  std::vector<Event> events;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const Rule& rule = rules_[i].rule;
    if (rule.action.kind != ActionKind::device_event) continue;
    events.push_back({rule.after_ns, rule.action.value, i});
  }
  return events;
}

// An event is raised once, so it counts as one occurrence and as one fault.
void Plan::happened(const Event& event) {
  const std::lock_guard lock(mutex_);
  State& state = rules_[event.rule];
  ++state.occurrences;
  note(state, {});
}

std::vector<Plan::Count> Plan::counts() const {
  const std::lock_guard lock(mutex_);
  std::vector<Count> counts;
  counts.reserve(rules_.size());
  for (const State& state : rules_) {
    counts.push_back({state.rule.text, state.occurrences, state.faults});
  }
  return counts;
}

}  // namespace weft::faults
