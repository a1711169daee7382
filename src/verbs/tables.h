// Which table of calls stands for a backend.
#pragma once

#include "provider/table.h"
#include "weft/verbs/backend.hpp"

namespace weft::verbs::detail {

struct Chosen {
  const provider::Table& table;
  Backend backend;  // embedded or system
};

// As choose_backend() decides.
[[nodiscard]] Chosen choose(Backend backend);

}  // namespace weft::verbs::detail
