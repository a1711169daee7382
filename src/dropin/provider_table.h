// The provider table that the C functions call. The device is in libibverbs.so.1; librdmacm.so.1
// gets the table from there by weft_program_table(), so that a process has one device.
#pragma once

#include "base/own_descriptors.h"
#include "provider/refusal.h"
#include "provider/table.h"

namespace weft::dropin {

[[nodiscard]] const provider::Table& table();

}  // namespace weft::dropin

// For Weft's own layers: without the checks of the program's calls.
extern "C" const weft::provider::Table* weft_provider_table();
// For libweft-sockets.so: counts a client that it has closed before the device knew it.
// Thread-safe.
extern "C" void weft_count_refusal(weft::provider::Refusal why);
// For libweft-sockets.so: keeps account of Weft's own descriptors from now on, with numbers from
// `first` on. Null where the kernel allows no account (base/own_descriptors.h).
extern "C" weft::own_descriptors::Account* weft_keep_own_descriptors(int first);
// For calls of the program.
extern "C" const weft::provider::Table* weft_program_table();
