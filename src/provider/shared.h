// The embedded device where several libraries of one process have one.
#pragma once

#include <poll.h>

#include <span>

#include "provider/table.h"

namespace weft::provider {

// That of the drop-in libibverbs.so.1, if the process has loaded it before this is first called;
// else embedded(). So a program under `weft run` whose libraries bring the layers along has one
// device, one capture and one line at the start.
[[nodiscard]] const Table& shared_embedded();

// poll(2) by Table::wait, whatever device the descriptors are of.
[[nodiscard]] int wait(std::span<pollfd> entries, int timeout_ms);

}  // namespace weft::provider
