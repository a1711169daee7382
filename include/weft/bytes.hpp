// Views of bytes. They do not own the memory: each function documents how long it must stay valid.
#pragma once

#include <cstddef>
#include <span>

namespace weft {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

}  // namespace weft
