// fi_getopt(3) and fi_setopt(3), and what goes along with a connection.
#pragma once

#include <cstddef>
#include <span>

#include "weft/stream.hpp"

namespace weft::fabric {

// Of an endpoint's stream. -FI_ENOPROTOOPT for other levels and names, -FI_EINVAL for another
// length or a value out of range.
[[nodiscard]] int set_option(stream::Options& options, int level, int name, const void* value,
                             std::size_t bytes);
[[nodiscard]] int get_option(const stream::Options& options, int level, int name, void* value,
                             std::size_t* bytes);

// FI_OPT_CM_DATA_SIZE.
[[nodiscard]] int give_connection_data_size(void* value, std::size_t* bytes);
// What of a program's data fits: fi_cm(3) has them cut in silence.
[[nodiscard]] std::span<const std::byte> connection_data(const void* data, std::size_t bytes);

}  // namespace weft::fabric
