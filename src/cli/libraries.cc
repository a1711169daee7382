#include "cli/libraries.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

namespace weft::cli {

namespace files = std::filesystem;

files::path library_folder(const char* library) {
  std::error_code failed;
  // The file itself, also where the program was started by a symbolic link or found on the PATH.
  const files::path self = files::read_symlink("/proc/self/exe", failed);
  // The first folder is that of the build tree, the second that of an installation, such as
  // lib/x86_64-linux-gnu.
  for (const char* folder : {"../lib/weft", "../" WEFT_LIBDIR "/weft"}) {
    files::path candidate = (self.parent_path() / folder).lexically_normal();
    if (has_library(candidate, library)) return candidate;
  }
  return {};
}

namespace {

// GCC's names, and a part of those of Clang: libclang_rt.asan-x86_64.so.
constexpr std::string_view runtimes[] = {"libasan", "liblsan", "libtsan", "libclang_rt."};

// Adds an entry to a colon-separated list.
void add_entry(const char* variable, const std::string& entry, bool first) {
  const char* before = std::getenv(variable);
  std::string list = entry;
  // An empty list is left out: an empty entry of LD_LIBRARY_PATH is the current directory.
  if (before && *before) list = first ? entry + ":" + before : before + (":" + entry);
  setenv(variable, list.c_str(), 1);
}

}  // namespace

std::string unusable_folder(const files::path& folder) {
  // LD_PRELOAD is separated by blanks and colons, LD_LIBRARY_PATH by colons and semicolons.
  if (folder.string().find_first_of(" :;") == std::string::npos) return {};
  return "the dynamic loader cannot be given the folder of the libraries, " + folder.string() +
         ", because its name has a blank, a colon or a semicolon; build or install Weft in another "
         "folder";
}

void prepend_library_path(const files::path& folder) {
  add_entry("LD_LIBRARY_PATH", folder.string(), true);
}

bool has_library(const files::path& folder, const char* library) {
  std::error_code failed;
  return files::exists(folder / library, failed);
}

// The runtime of a sanitizer must stay in front.
void append_preload(const files::path& folder, const char* library) {
  add_entry("LD_PRELOAD", (folder / library).string(), false);
}

void preload_before_allocators(const files::path& folder, const char* library) {
  const char* const before = std::getenv("LD_PRELOAD");
  const std::string_view list = before ? before : "";
  const auto has = [&](std::string_view name) { return list.find(name) != list.npos; };
  const bool sanitized = std::any_of(std::begin(runtimes), std::end(runtimes), has);
  add_entry("LD_PRELOAD", (folder / library).string(), !sanitized);
}

}  // namespace weft::cli
