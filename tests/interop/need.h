// For programs that exit at the first unexpected result and print it.
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
// Expects that the call returns -1 with this errno.
#define NEED_ERROR(call, error)                                   \
  do {                                                            \
    errno = 0;                                                    \
    need_true((call) == -1 && errno == (error), #call, __LINE__); \
  } while (false)
