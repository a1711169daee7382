#include "cli/same_file.h"

#include <filesystem>
#include <system_error>

namespace weft::cli {

namespace files = std::filesystem;

bool same_file(const std::string& one, const std::string& other) {
  std::error_code ignored;
  if (files::exists(one, ignored) && !files::is_regular_file(one, ignored)) return false;
  const auto place = [&](const std::string& path) {
    return files::weakly_canonical(files::absolute(path, ignored), ignored);
  };
  return place(one) == place(other) || files::equivalent(one, other, ignored);
}

}  // namespace weft::cli
