// Files of memory (memfd_create(2)) that another process has made.
#pragma once

#include <sys/stat.h>

namespace weft {

// Whether this file of memory has pages of the ordinary size. Others come from a supply that may be
// used up: each process that has the file can give its pages back (fallocate(2)), in spite of
// seals, and the next access to them ends a process with SIGBUS. Thread safe.
[[nodiscard]] bool has_ordinary_pages(const struct stat& status);

}  // namespace weft
