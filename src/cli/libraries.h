// Finds the drop-in libraries, and makes programs load them.
#pragma once

#include <filesystem>
#include <string>

namespace weft::cli {

// The folder that holds this library, relative to this executable both in the build tree and when
// installed. Empty if there is none.
[[nodiscard]] std::filesystem::path library_folder(const char* library = "libibverbs.so.1");

// Why programs cannot load libraries from this folder, as one sentence; empty if they can. The
// dynamic loader ends a name in its lists at some characters (ld.so(8)), and only warns about the
// parts: the programs would run without Weft.
[[nodiscard]] std::string unusable_folder(const std::filesystem::path& folder);

// Puts the folder first in LD_LIBRARY_PATH of this process and the programs that it starts.
void prepend_library_path(const std::filesystem::path& folder);
// Whether the folder has this library. The dynamic loader only warns about a file of LD_PRELOAD
// that does not exist, and starts the program without it.
[[nodiscard]] bool has_library(const std::filesystem::path& folder, const char* library);
// Adds a library of the folder, which replaces functions of the C library, to LD_PRELOAD.
void append_preload(const std::filesystem::path& folder, const char* library);
// As append_preload(), but in front of an allocator that the user preloads, so that the library
// sees what the program gives back to it. The runtime of a sanitizer stays in front.
void preload_before_allocators(const std::filesystem::path& folder, const char* library);

}  // namespace weft::cli
