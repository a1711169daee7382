/* Versions, errors and timeouts of the C interface. See weft.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what the shared library exports. */
#define WEFT_C_API __attribute__((visibility("default")))

/* The timeout of a call that may block without limit. */
#define WEFT_FOREVER (-1)

/* The version of the library that runs, "1.2.3". Valid as long as the program runs. Any thread. */
WEFT_C_API const char* weft_version(void);

/* Why the last call of this thread that failed has failed, in one sentence. Empty if none has;
 * never null. Valid until the next call of this thread that fails: each thread has its own. */
WEFT_C_API const char* weft_error_text(void);

#ifdef __cplusplus
}
#endif
