// The embedded instance: the device in this process.
#pragma once

#include "provider/table.h"

namespace weft::provider {

[[nodiscard]] const Table& embedded();

}  // namespace weft::provider
