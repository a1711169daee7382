// For programs that end at the first answer that is not as expected, and say which.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

inline void need_true(bool holds, const char* what, int line) {
  if (holds) return;
  std::printf("line %d: %s (errno: %s)\n", line, what, std::strerror(errno));
  std::exit(1);
}

#define NEED(what) need_true((what), #what, __LINE__)
// The call answers -1 with that errno.
#define NEED_ERROR(call, error)                                   \
  do {                                                            \
    errno = 0;                                                    \
    need_true((call) == -1 && errno == (error), #call, __LINE__); \
  } while (false)
