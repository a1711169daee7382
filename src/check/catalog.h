// The rules that `weft run --check` watches: their names, and what a report states about each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace weft::check {

enum class Rule : std::uint8_t {
  dead_key,
  unknown_key,
  wrong_domain,
  region_too_small,
  missing_right,
  remote_refused,
  refused_peer,
  changed_send,
  changed_receive,
  early_access,
  polled_write,
  posted_region,
  unmapped_memory,
  freed_memory,
  freed_posted,
  unordered_access,
  missing_fence,
  leak,
  still_in_use,
  destroyed_object,
  wrong_state,
  queue_overrun,
  never_retired,
  too_few_receives,
  short_receive,
  never_polled,
  undefined_field,
  unacknowledged_event,
  not_drained,
  fork_without_init,
  used_in_child,
  signal_handler,
  inline_size,
  datagram_size,
};

struct RuleText {
  Rule rule;
  std::string_view name;      // in reports and suppressions
  std::string_view title;     // one clause
  std::string_view source;    // the manual page or the section of the specification
  std::string_view hardware;  // a sentence: what an adapter does
};

// In the order of Rule.
[[nodiscard]] std::span<const RuleText> rules();
[[nodiscard]] const RuleText& text_of(Rule rule);

}  // namespace weft::check
