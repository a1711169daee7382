// The limit of what a program sends with a connection request or the answer to it.
#pragma once

#include <cstddef>

#include "weft/stream/options.hpp"

namespace weft::stream::detail {

// Throws Error (EINVAL) for more bytes than max_private_data_bytes() allows.
void check_private_data(std::size_t bytes, verbs::Backend backend);

}  // namespace weft::stream::detail
