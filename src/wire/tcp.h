// TCP headers: RFC 9293 §3.1, window scale of RFC 7323.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "weft/wire/values.hpp"
#include "wire/error.h"

namespace weft::wire {

// Writes the checksum into a header that was emitted without.
void store_tcp_checksum(MutableBytes header, std::uint16_t checksum);

}  // namespace weft::wire
