// Findings as JSON, for --check-report.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "check/catalog.h"
#include "check/symbols.h"

namespace weft::check {

struct JsonFinding {
  const RuleText& rule;
  std::string what;
  std::uint64_t times = 1;
  std::vector<std::pair<std::string, const std::vector<Frame>*>> stacks;
};

// One object, without a line end.
[[nodiscard]] std::string to_json(const JsonFinding& finding);

}  // namespace weft::check
