// The provider table of the system's RDMA devices: rdma-core's libibverbs and librdmacm, loaded at
// their first use.
#pragma once

#include <string>

#include "provider/table.h"

namespace weft::provider {

struct System {
  const Table* table = nullptr;  // null if the libraries cannot be loaded
  std::string reason;            // the reason for null, in one sentence
};

// Loads the libraries at the first call; they are never unloaded. Functions that an older rdma-core
// lacks fail with EOPNOTSUPP. Weft's drop-in libraries of the same names are refused: a program
// that asks for the system's devices must not silently get the embedded one.
[[nodiscard]] const System& system_provider();

// The name of the first device with an active port; empty if there is none.
[[nodiscard]] std::string active_device(const Table& table);

}  // namespace weft::provider
