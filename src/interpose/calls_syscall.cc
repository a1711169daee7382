// The replacement of syscall(2), by which some programs close and duplicate descriptors: libuv, and
// with it Node.js, closes all of its own so. What this library knows of the number must end with
// it, because the next file gets it.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>

#include "base/own_descriptors.h"
#include "interpose/export.h"
#include "interpose/kernel_connection.h"
#include "interpose/next.h"
#include "interpose/stream_set.h"
#include "interpose/table.h"

using namespace weft::interpose;

namespace {

constinit next::Function<long(long, long, long, long, long, long, long)> next_syscall{"syscall"};

// Weft itself closes its descriptors by this call, too.
void note_close(int fd) {
  if (weft::own_descriptors::owns(fd)) return;
  note_end_of_kernel_connection(fd);
  forget(fd);
  forget_set(fd);
}

}  // namespace

// No call has more than six arguments. What the caller has not passed is not used.
WEFT_INTERPOSED long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& each : arguments) each = va_arg(list, long);
  va_end(list);
  const auto& [a, b, c, d, e, f] = arguments;
  switch (number) {
    case SYS_close:
      note_close(static_cast<int>(a));
      break;
    case SYS_close_range:
      return close_range(static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<int>(c));
    case SYS_dup:
      return dup(static_cast<int>(a));
#ifdef SYS_dup2
    case SYS_dup2:
      return dup2(static_cast<int>(a), static_cast<int>(b));
#endif
    case SYS_dup3:
      return dup3(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c));
    default:
      break;
  }
  return next_syscall(number, a, b, c, d, e, f);
}
