/* Checks for tests in C: the first that fails ends the program. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"

/* A bound for calls that are expected to succeed. */
#define PATIENCE_MS 60000

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__, #condition, \
              weft_error_text());                                                             \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

/* The last error has this word. */
#define CHECK_SAYS(word) CHECK(strstr(weft_error_text(), word) != NULL)

#define CHECK_IS(value, expected)                                                                  \
  do {                                                                                             \
    const long long check_got = (long long)(value);                                                \
    const long long check_wanted = (long long)(expected);                                          \
    if (check_got != check_wanted) {                                                               \
      fprintf(stderr, "%s:%d: %s is %lld, not %lld; last error: %s\n", __FILE__, __LINE__, #value, \
              check_got, check_wanted, weft_error_text());                                         \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)
