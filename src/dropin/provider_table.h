// Where the C functions find the device: libibverbs.so.1 has it, librdmacm.so.1 asks the other for
// it.
#pragma once

#include "provider/table.h"

namespace weft::dropin {

[[nodiscard]] const provider::Table& table();

}  // namespace weft::dropin

extern "C" const weft::provider::Table* weft_provider_table();
