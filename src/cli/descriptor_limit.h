// How many files this process and the programs that it becomes may open.
#pragma once

#include <sys/resource.h>

namespace weft::cli {

// Many systems start programs with 1024. To raise the soft limit up to the hard one needs no
// privilege (getrlimit(2)). If it fails, the old one stays.
inline void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace weft::cli
