// The provider table of the embedded device, which lives in this process.
#pragma once

#include "provider/table.h"

namespace weft::provider {

[[nodiscard]] const Table& embedded();

}  // namespace weft::provider
