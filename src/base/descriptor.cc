#include "base/descriptor.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace weft {

// Linux releases the number even if close(2) fails, so that the result carries no duty.
void CloseBySystemCall::operator()(int fd) const noexcept {
  ::syscall(SYS_close, fd);
}

}  // namespace weft
