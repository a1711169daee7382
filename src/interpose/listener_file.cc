#include "interpose/listener_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdint>

#include "interpose/descriptor.h"
#include "weft/error.hpp"

namespace weft::interpose {

ListenerFile::ListenerFile(int visible, int kernel) : kernel_(kernel) {
  if (!epoll_.valid() || epoll_.add(visible, EPOLLIN, 0) != 0 || epoll_.add(kernel, 0, 0) != 0) {
    throw Error(ENOMEM, "no descriptors to listen with");
  }
}

void ListenerFile::replace(int fd) const {
  const int flags = next::fcntl(fd, F_GETFL, nullptr);
  const int descriptor_flags = next::fcntl(fd, F_GETFD, nullptr);
  if (flags < 0 || descriptor_flags < 0) throw Error(errno, "cannot listen");
  set_blocking(epoll_.get(), (flags & O_NONBLOCK) == 0);
  const int closes = descriptor_flags & FD_CLOEXEC ? O_CLOEXEC : 0;
  if (next::dup3(epoll_.get(), fd, closes) < 0) throw Error(errno, "cannot listen");
}

bool ListenerFile::is_file_of(int fd) const {
  return is_same_file(epoll_.get(), fd);
}

// EPOLLERR and EPOLLHUP are reported in any case; a socket that listens has neither.
void ListenerFile::show_kernel_queue(bool shown) const {
  epoll_.change(kernel_, shown ? std::uint32_t{EPOLLIN} : 0, 0);
}

}  // namespace weft::interpose
