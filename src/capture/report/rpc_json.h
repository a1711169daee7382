// An RPC as a line of JSON.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "weft/capture/rpc.hpp"

namespace weft::capture {

// `number`: in the order of this list, from 1.
void write_json(fmt::memory_buffer& out, const Rpc& rpc, std::uint64_t number);

}  // namespace weft::capture
