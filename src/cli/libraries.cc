#include "cli/libraries.h"

#include <cstdlib>
#include <string>
#include <system_error>

namespace weft::cli {

namespace files = std::filesystem;

files::path library_folder() {
  std::error_code failed;
  const files::path self = files::read_symlink("/proc/self/exe", failed);
  for (const char* folder : {"../lib/weft", "../" WEFT_LIBDIR "/weft"}) {
    files::path candidate = (self.parent_path() / folder).lexically_normal();
    if (files::exists(candidate / "libibverbs.so.1", failed)) return candidate;
  }
  return {};
}

void prepend_library_path(const files::path& folder) {
  const char* before = std::getenv("LD_LIBRARY_PATH");
  const std::string path = before && *before ? folder.string() + ":" + before : folder.string();
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
}

}  // namespace weft::cli
