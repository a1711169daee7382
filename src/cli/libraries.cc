#include "cli/libraries.h"

#include <cstdlib>
#include <string>
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

// Adds an entry to a colon-separated list. `first` is false for LD_PRELOAD: the runtime of a
// sanitizer must stay in front there.
void add_entry(const char* variable, const std::string& entry, bool first) {
  const char* before = std::getenv(variable);
  std::string list = entry;
  // An empty list is left out: an empty entry of LD_LIBRARY_PATH is the current directory.
  if (before && *before) list = first ? entry + ":" + before : before + (":" + entry);
  setenv(variable, list.c_str(), 1);
}

}  // namespace

void prepend_library_path(const files::path& folder) {
  add_entry("LD_LIBRARY_PATH", folder.string(), true);
}

bool has_library(const files::path& folder, const char* library) {
  std::error_code failed;
  return files::exists(folder / library, failed);
}

void append_preload(const files::path& folder, const char* library) {
  add_entry("LD_PRELOAD", (folder / library).string(), false);
}

}  // namespace weft::cli
