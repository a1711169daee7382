// Lists of settings as users write them: "NAME=VALUE,NAME=VALUE".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "faults/mistake.h"

namespace weft::faults {

struct Assignment {
  Word name;
  Word value;
};

// Divides a list. Blanks around names and values are left out. A part without an equals sign, an
// empty part and a name that occurs twice are mistakes.
[[nodiscard]] std::optional<Mistake> read_assignments(std::string_view text,
                                                      std::vector<Assignment>& assignments);

// "NAME=, NAME=", for a message. `names`: of anything with a member `name`.
template <typename Names>
[[nodiscard]] std::string listed_names(const Names& names) {
  std::string list;
  for (const auto& each : names) {
    list += (list.empty() ? "" : ", ") + std::string(each.name) + "=";
  }
  return list;
}

}  // namespace weft::faults
