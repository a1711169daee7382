// Spans of bytes. Who they belong to, and until when they are there, says who hands them over.
#pragma once

#include <cstddef>
#include <span>

namespace weft {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

}  // namespace weft
