// The first word of a rule: what happens.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "faults/names.h"
#include "faults/rules.h"

namespace weft::faults {

// What is wrong with a rule, and where: offset in bytes from its beginning.
struct Mistake {
  std::string message;
  std::size_t offset = 0;
};

struct Word {
  std::string_view text;
  std::size_t offset = 0;
};

// Reads an action that is possible at this point.
[[nodiscard]] std::optional<Mistake> read_action(const Word& word, const PointName& point,
                                                 Action& action);

}  // namespace weft::faults
