// The first word of a rule: what happens.
#pragma once

#include <optional>

#include "faults/mistake.h"
#include "faults/names.h"
#include "faults/rules.h"

namespace weft::faults {

// Reads an action that is possible at this point.
[[nodiscard]] std::optional<Mistake> read_action(const Word& word, const PointName& point,
                                                 Action& action);

}  // namespace weft::faults
