// One embedded device for all libraries of a process that contain Weft.
#pragma once

#include <poll.h>

#include <cstdint>
#include <span>

#include "provider/table.h"

namespace weft::provider {

// The table of the drop-in libibverbs.so.1 if the process has loaded it before the first call, else
// embedded(). So a program under `weft run` that also contains the C++ layers has one device, one
// capture and one line at the start.
[[nodiscard]] const Table& shared_embedded();

// The table for the calls of a program, with its checks, of the same drop-in; null if there is
// none.
[[nodiscard]] const Table* drop_in_program_table();

// The most bytes of inline data that a queue pair of the embedded device takes.
[[nodiscard]] std::uint32_t embedded_inline_bytes();

// Table::is_manual of shared_embedded().
[[nodiscard]] bool is_manual();

// poll(2) through Table::wait of shared_embedded(), for descriptors of any kind.
[[nodiscard]] int wait(std::span<pollfd> entries, int timeout_ms);

}  // namespace weft::provider
