// Writes an RPC as a line of JSON.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "weft/capture/rpc.hpp"

namespace weft::capture {

// `number` is the position in the list of RPCs, from 1.
void write_json(fmt::memory_buffer& out, const Rpc& rpc, std::uint64_t number);

}  // namespace weft::capture
