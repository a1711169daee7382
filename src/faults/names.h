// The words of the rules: points, errno values, completion statuses and asynchronous events.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "faults/rules.h"

namespace weft::faults {

struct PointName {
  std::string_view name;
  Point point;
  ActionKind kind;           // of the actions that are possible there
  std::string_view meaning;  // for the help
};
// In the order of the help.
[[nodiscard]] std::span<const PointName> point_names();
[[nodiscard]] const PointName* find_point(std::string_view name);
[[nodiscard]] std::string_view name_of(Point point);

struct ConditionName {
  std::string_view name;     // with its value, such as "nth=N"
  std::string_view meaning;  // whole sentences, for the help
};
[[nodiscard]] std::span<const ConditionName> condition_names();

struct ValueName {
  std::string_view name;
  int value;
};
// The actions of a kind: names of errno values, of statuses without IBV_WC_, of events without
// IBV_EVENT_.
[[nodiscard]] std::span<const ValueName> value_names(ActionKind kind);
// Also takes the name with its prefix. Letter case does not matter.
[[nodiscard]] std::optional<int> find_value(ActionKind kind, std::string_view name);
[[nodiscard]] std::string_view name_of(const Action& action);

// What follows the name of a failure and a colon.
enum class Argument : std::uint8_t {
  none,
  error,     // an errno value; may be left out
  reason,    // why a connection is rejected; may be left out
  duration,  // in nanoseconds
  limit,     // the same, and may be left out
  code,      // of a Terminate: layer, type and code
};

struct FailureName {
  std::string_view name;
  Failure failure;
  Argument argument;
  std::int64_t standard;  // the argument where it is left out
  std::span<const Point> points;
  std::string_view meaning;  // a whole sentence, for the help
};
// In the order of the help. One name may have several meanings at different points.
[[nodiscard]] std::span<const FailureName> failure_names();
// Null where this failure is not possible at the point.
[[nodiscard]] const FailureName* find_failure(std::string_view name, Point point);
// With its argument, such as "DELAY:DURATION".
[[nodiscard]] std::string form_of(const FailureName& failure);
// The reasons for which InfiniBand's connection management rejects a connection.
[[nodiscard]] std::span<const ValueName> reason_names();
[[nodiscard]] bool same_letters(std::string_view a, std::string_view b);

}  // namespace weft::faults
