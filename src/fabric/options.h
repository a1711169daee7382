// fi_getopt(3) and fi_setopt(3), and the private data of connection requests.
#pragma once

#include <cstddef>
#include <span>

#include "weft/stream.hpp"

namespace weft::fabric {

// Access one option of an endpoint's stream. They fail with -FI_ENOPROTOOPT for an unknown level or
// name, and with -FI_EINVAL for a wrong length or a value out of range.
[[nodiscard]] int set_option(stream::Options& options, int level, int name, const void* value,
                             std::size_t bytes);
[[nodiscard]] int get_option(const stream::Options& options, int level, int name, void* value,
                             std::size_t* bytes);

// FI_OPT_CM_DATA_SIZE: how much private data a request can carry.
[[nodiscard]] int give_connection_data_size(void* value, std::size_t* bytes);
// The part of a program's private data that fits. fi_cm(3) lets providers cut the rest silently.
[[nodiscard]] std::span<const std::byte> connection_data(const void* data, std::size_t bytes);

}  // namespace weft::fabric
