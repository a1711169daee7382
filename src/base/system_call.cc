#include "base/system_call.h"

#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <unistd.h>

namespace weft {

constinit detail::Syscall detail::syscall_of_c_library = ::syscall;

namespace {

// The C library is always loaded, so this opens nothing and the handle can be kept.
[[gnu::constructor]] void find_function() {
  void* const library = dlopen(LIBC_SO, RTLD_LAZY | RTLD_NOLOAD);
  void* const found = library ? dlsym(library, "syscall") : nullptr;
  if (found) detail::syscall_of_c_library = reinterpret_cast<detail::Syscall>(found);
}

}  // namespace
}  // namespace weft
