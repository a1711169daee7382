// Chooses the table of provider calls for a backend.
#pragma once

#include "provider/table.h"
#include "weft/verbs/backend.hpp"

namespace weft::verbs::detail {

struct Chosen {
  const provider::Table& table;
  Backend backend;  // embedded or system
};

// Resolves `backend` as choose_backend() does, and throws the same errors.
[[nodiscard]] Chosen choose(Backend backend);

}  // namespace weft::verbs::detail
