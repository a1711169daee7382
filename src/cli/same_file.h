// Whether a command would write a file that it also reads, or writes twice.
#pragma once

#include <string>

namespace weft::cli {

// Returns whether both are the same regular file, which may not be there yet. Devices, such as
// /dev/null, and pipes do not lose anything.
[[nodiscard]] bool same_file(const std::string& one, const std::string& other);

}  // namespace weft::cli
