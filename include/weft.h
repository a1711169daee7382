/* The C interface of Weft: connections, messages and byte streams over RDMA.
 *
 * Objects are opaque, and are freed by the function of their name. Unless a comment says otherwise:
 * - A function returns 0 or a count on success, and a negative errno value on failure. Then
 *   weft_error_text() has one sentence that names the object, the cause and the next step.
 * - Strings and memory that are passed in are used during the call only.
 * - A timeout is in milliseconds: 0 checks once and does not block, WEFT_FOREVER has no limit.
 * - A pointer to an object must not be null, and one object is not freed while another thread uses
 *   it. Null is allowed for options, which means the defaults, and for the functions that free.
 * - Structures of options begin with their size, so that later releases can append members. Set it
 *   by the initializer of the same name. A member that is 0 has its default value.
 *
 * A thread must not be cancelled by pthread_cancel(3) while it is in a call of the library: that
 * ends the process. Disable the cancellation around the call, or end its wait by closing the
 * object.
 *
 * In the child of a fork(2) the objects of the parent can only be freed; new ones can be made.
 *
 * Functions, structures and values are kept in later releases with the same MAJOR.MINOR version;
 * new ones are added. Link with -lweft; no C++ is needed.
 */
#pragma once

#include "weft/c/common.h"
#include "weft/c/connection.h"
#include "weft/c/message.h"
#include "weft/c/stream.h"
