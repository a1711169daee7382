// The plan of faults of one process: decides at each point whether a rule applies now.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "faults/rules.h"

namespace weft::faults {

// What is known about an occurrence of a point. Calls have no queue pair and no peer.
struct Occurrence {
  std::uint64_t now_ns = 0;
  std::uint32_t queue_pair = 0;
  PeerAddress peer{};  // zero: none
  Side side = Side::none;
  std::uint64_t bytes = 0;
};

// Thread-safe. With the same seed and the same occurrences in the same order, the same faults
// happen. Each rule has a generator of its own, so that rules do not change each other's choices.
class Plan {
 public:
  // `seed` is used if the rules name none. Rules for other processes than `process` are left out.
  // Times count from `opened_ns`. With `verbose`, each fault prints a line on stderr.
  Plan(Rules rules, std::uint64_t seed, std::uint64_t opened_ns, std::string_view process,
       bool verbose);

  // Each fault is described to `sink` as well, which must not call this object. To be called
  // before the plan is used.
  void describe_to(std::function<void(const std::string&)> sink) { sink_ = std::move(sink); }

  // Whether any rule names this point.
  [[nodiscard]] bool names(Point point) const { return named_[static_cast<std::size_t>(point)]; }
  // The action of the first rule that applies to this occurrence of the point.
  [[nodiscard]] std::optional<Action> at(Point point, const Occurrence& occurrence);

  // Whether any rule acts on connections that are established.
  [[nodiscard]] bool names_streams() const { return names_streams_; }
  // What happens to a connection that begins with this occurrence.
  struct Scheduled {
    Action action;
    std::uint64_t after_ns = 0;     // both since it began
    std::uint64_t after_bytes = 0;  // in both directions
    std::size_t rule = 0;
  };
  [[nodiscard]] std::vector<Scheduled> schedule(const Occurrence& connection);
  // It has happened.
  void happened(const Scheduled& scheduled, std::uint32_t queue_pair);

  // An event of the device, and how long after its opening it is due.
  struct Event {
    std::uint64_t after_ns = 0;
    int type = 0;  // ibv_event_type
    std::size_t rule = 0;
  };
  [[nodiscard]] std::vector<Event> events() const;
  // The event has been raised.
  void happened(const Event& event);

  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] std::size_t size() const { return rules_.size(); }

  struct Count {
    std::string rule;
    std::uint64_t occurrences = 0;  // that met its conditions
    std::uint64_t faults = 0;
  };
  [[nodiscard]] std::vector<Count> counts() const;

 private:
  struct State {
    Rule rule;
    std::uint64_t generator = 0;
    std::uint64_t bytes = 0;
    std::uint64_t occurrences = 0;
    std::uint64_t faults = 0;
    std::uint64_t scheduled = 0;  // and has not happened yet
  };

  [[nodiscard]] bool counts_for(State& state, Point point, const Occurrence& occurrence) const;
  [[nodiscard]] static bool chosen(State& state);
  void note(State& state, const Occurrence& occurrence) const;

  std::uint64_t seed_;
  std::uint64_t opened_ns_;
  bool verbose_;
  std::function<void(const std::string&)> sink_;
  std::array<bool, point_count> named_{};
  bool names_streams_ = false;
  mutable std::mutex mutex_;
  std::vector<State> rules_;
};

}  // namespace weft::faults
