#include "base/memory_file.h"

#include <sys/mman.h>

#include <optional>

#include "base/descriptor.h"

namespace weft {
namespace {

// The kernel has one file system for files of memory with ordinary pages, and others for each size
// of huge pages. Nothing where there are no such files.
std::optional<dev_t> ordinary_file_system() {
  const Descriptor file(memfd_create("weft-ordinary", MFD_CLOEXEC));
  struct stat status {};
  if (!file.valid() || fstat(file.get(), &status) != 0) return std::nullopt;
  return status.st_dev;
}

}  // namespace

bool has_ordinary_pages(const struct stat& status) {
  static const std::optional<dev_t> ordinary = ordinary_file_system();
  return S_ISREG(status.st_mode) && ordinary == status.st_dev;
}

}  // namespace weft
