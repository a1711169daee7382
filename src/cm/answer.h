// The return values of rdma_cm's functions: 0, or -1 with errno set.
#pragma once

#include <cerrno>

namespace weft::cm {

inline int answer(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // namespace weft::cm
