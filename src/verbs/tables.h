// Which table of calls stands for a backend.
#pragma once

#include "provider/table.h"
#include "weft/verbs/backend.hpp"

namespace weft::verbs::detail {

struct Chosen {
  const provider::Table& table;
  Backend backend;  // embedded or system
};

// Throws Error(EOPNOTSUPP) for a backend that this build does not have.
[[nodiscard]] Chosen choose(Backend backend);

}  // namespace weft::verbs::detail
