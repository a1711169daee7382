// The provider table that the C functions call. The device is in libibverbs.so.1; librdmacm.so.1
// gets the table from there by weft_provider_table(), so that a process has one device.
#pragma once

#include "provider/table.h"

namespace weft::dropin {

[[nodiscard]] const provider::Table& table();

}  // namespace weft::dropin

extern "C" const weft::provider::Table* weft_provider_table();
