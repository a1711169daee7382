// The generated functions that only return a fixed value (cmake/WeftExports.cmake). They are
// declared without arguments: on every Linux ABI a function may ignore the arguments that its
// caller passes.
#pragma once

#include <cerrno>

#include "dropin/export.h"

#define WEFT_ANSWER_ENOSYS(name) \
  WEFT_EXPORT int name() {       \
    errno = ENOSYS;              \
    return ENOSYS;               \
  }
#define WEFT_ANSWER_EOPNOTSUPP(name) \
  WEFT_EXPORT int name() {           \
    errno = EOPNOTSUPP;              \
    return EOPNOTSUPP;               \
  }
#define WEFT_ANSWER_minus_one(name) \
  WEFT_EXPORT int name() {          \
    errno = EOPNOTSUPP;             \
    return -1;                      \
  }
#define WEFT_ANSWER_null(name) \
  WEFT_EXPORT void* name() {   \
    errno = EOPNOTSUPP;        \
    return nullptr;            \
  }
#define WEFT_ANSWER_zero(name) \
  WEFT_EXPORT int name() {     \
    return 0;                  \
  }
#define WEFT_ANSWER_nothing(name) \
  WEFT_EXPORT void name() {}

#define WEFT_PRIVATE_ANSWER_ENOSYS(name)        \
  WEFT_PRIVATE_EXPORT(name) int weft_##name() { \
    errno = ENOSYS;                             \
    return ENOSYS;                              \
  }
#define WEFT_PRIVATE_ANSWER_null(name)            \
  WEFT_PRIVATE_EXPORT(name) void* weft_##name() { \
    errno = EOPNOTSUPP;                           \
    return nullptr;                               \
  }
#define WEFT_PRIVATE_ANSWER_zero(name)          \
  WEFT_PRIVATE_EXPORT(name) int weft_##name() { \
    return 0;                                   \
  }
#define WEFT_PRIVATE_ANSWER_nothing(name) \
  WEFT_PRIVATE_EXPORT(name) void weft_##name() {}
