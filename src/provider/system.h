// The system instance: rdma-core's libibverbs and librdmacm, loaded when they are first asked for.
#pragma once

#include <string>

#include "provider/table.h"

namespace weft::provider {

struct System {
  const Table* table = nullptr;  // null where the libraries cannot be had
  std::string reason;            // why, in one sentence
};

// Loads the libraries once; they stay. What an older rdma-core lacks answers EOPNOTSUPP. Weft's own
// drop-in under their names is refused: a program that asks for the system's devices would get the
// embedded one without a word.
[[nodiscard]] const System& system_provider();

// The name of a device with an active port, or empty.
[[nodiscard]] std::string active_device(const Table& table);

}  // namespace weft::provider
