#include "base/own_sockets.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "base/descriptor_bits.h"
#include "base/system_call.h"

namespace weft::own_sockets {
namespace {

constinit DescriptorBits open_numbers{};

}  // namespace

void add(int fd) {
  open_numbers.set(fd);
}

void remove(int fd) {
  open_numbers.reset(fd);
}

void close_after_fork() {
  open_numbers.take_all([](int fd) { system_call(SYS_close, fd); });
}

}  // namespace weft::own_sockets
