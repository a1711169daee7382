// Where the drop-in libraries are, and how a program comes to load them.
#pragma once

#include <filesystem>

namespace weft::cli {

// Beside this executable, in the build tree as well as where it is installed; empty: nowhere.
[[nodiscard]] std::filesystem::path library_folder();

// Puts the folder first on the library path of the programs that this process starts.
void prepend_library_path(const std::filesystem::path& folder);
// The library that stands before the C library's sockets, also of programs that it starts.
void append_preload(const std::filesystem::path& folder);

}  // namespace weft::cli
