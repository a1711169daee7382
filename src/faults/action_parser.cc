#include "faults/action_parser.h"

#include <algorithm>
#include <array>
#include <limits>

#include "faults/numbers.h"

namespace weft::faults {
namespace {

std::string listed(std::span<const ValueName> values) {
  std::string list;
  for (const ValueName& value : values) {
    if (!list.empty()) list += ", ";
    list += value.name;
  }
  return list;
}

// The list contains what read_action() accepts at this point: the values of its kind and the
// failures that are possible there.
std::string listed_actions(const PointName& point) {
  std::string list = listed(value_names(point.kind));
  for (const FailureName& failure : failure_names()) {
    if (std::ranges::find(failure.points, point.point) == failure.points.end()) continue;
    if (!list.empty()) list += ", ";
    list += form_of(failure);
  }
  return list;
}

// rdma_cm has errors as negative numbers in the status of its events.
bool read_error(std::string_view text, std::int64_t& status) {
  const auto error = find_value(ActionKind::call_error, text);
  if (!error) return false;
  status = -*error;
  return true;
}

// Reasons of rejects are positive and errors negative, so that one number holds either.
bool read_reason(std::string_view text, std::int64_t& status) {
  for (const ValueName& reason : reason_names()) {
    if (!same_letters(reason.name, text)) continue;
    status = reason.value;
    return true;
  }
  // The field of a REJ message of InfiniBand has 16 bits.
  constexpr std::uint64_t last_reason = 0xFFFF;
  std::uint64_t number = 0;
  if (read_count(text, 1, number) && number <= last_reason) {
    status = static_cast<std::int64_t>(number);
    return true;
  }
  return read_error(text, status);
}

// The argument of an action is signed, so a duration that fits only without a sign is refused.
bool read_nanoseconds(std::string_view text, std::int64_t& ns) {
  std::uint64_t value = 0;
  if (!read_duration(text, value)) return false;
  if (value > std::numeric_limits<std::int64_t>::max()) return false;
  ns = static_cast<std::int64_t>(value);
  return true;
}

// Layer and type have four bits each, the code has eight: RFC 5040 §4.8.
bool read_terminate(std::string_view text, std::int64_t& value) {
  value = 0;
  for (const std::uint64_t most : {15, 15, 255}) {
    const std::size_t slash = text.find('/');
    // Each part but the last must end at a slash, and the last must have none behind it.
    const bool last = most == 255;
    std::uint64_t part = 0;
    if (last != (slash == std::string_view::npos)) return false;
    if (!read_count(text.substr(0, slash), 0, part) || part > most) return false;
    // Each part takes a whole byte here, unlike on the wire, so that all three are read back alike.
    value = value << 8 | static_cast<std::int64_t>(part);
    if (!last) text.remove_prefix(slash + 1);
  }
  return true;
}

struct ArgumentForm {
  Argument argument;
  std::string_view allowed;
  bool (*read)(std::string_view text, std::int64_t& value);
};

constexpr std::array forms{
    ArgumentForm{Argument::error, "an error, such as EHOSTUNREACH", read_error},
    ArgumentForm{Argument::reason, "a reason, such as CONSUMER_DEFINED, its number, or an error",
                 read_reason},
    ArgumentForm{Argument::duration, "a duration in ns, us, ms or s, such as DELAY:200ms",
                 read_nanoseconds},
    ArgumentForm{Argument::limit, "a duration in ns, us, ms or s, or none", read_nanoseconds},
    ArgumentForm{Argument::code, "three numbers, such as TERMINATE:1/2/2", read_terminate},
};

std::optional<Mistake> read_argument(const Word& word, const FailureName& failure,
                                     std::int64_t& value) {
  value = failure.standard;
  const std::size_t colon = word.text.find(':');
  // Without a colon this is the end of the word, where the argument is missing.
  const std::size_t begin = std::min(colon, word.text.size() - 1) + 1;
  const auto form = std::ranges::find(forms, failure.argument, &ArgumentForm::argument);
  if (form == forms.end()) {
    if (colon == std::string_view::npos) return std::nullopt;
    return Mistake{std::string(failure.name) + " has no argument here", word.offset + colon};
  }
  // The brackets that the user reads also decide here, so that both agree.
  const bool optional = form_of(failure).find('[') != std::string::npos;
  if (colon == std::string_view::npos && optional) return std::nullopt;
  if (colon != std::string_view::npos && form->read(word.text.substr(begin), value)) {
    return std::nullopt;
  }
  return Mistake{form_of(failure) + " needs " + std::string(form->allowed), word.offset + begin};
}

}  // namespace

std::optional<Mistake> read_action(const Word& word, const PointName& point, Action& action) {
  // The errors and statuses of the point come first; they have no arguments. Only then the word is
  // taken for the name of a failure, which ends at a colon.
  if (const auto value = find_value(point.kind, word.text)) {
    action = {.kind = point.kind, .value = *value};
    return std::nullopt;
  }
  const std::string_view name = word.text.substr(0, word.text.find(':'));
  if (const FailureName* failure = find_failure(name, point.point)) {
    action = {.kind = ActionKind::failure, .value = static_cast<int>(failure->failure)};
    return read_argument(word, *failure, action.argument);
  }
  return Mistake{
      "must be one of these at " + std::string(point.name) + ": " + listed_actions(point),
      word.offset};
}

}  // namespace weft::faults
