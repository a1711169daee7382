// What the program's descriptor of a listening socket is: an epoll set, which is readable while the
// visible socket is. It can be readable as well while a client waits in the kernel's own queue, so
// that the program accepts it there, without a thread of this library in between
// (DirectAccepting).
#pragma once

#include "base/epoll_set.h"

namespace weft::interpose {

// Not thread-safe.
class ListenerFile {
 public:
  // Both descriptors have to stay open as long as the object is used. Throws Error.
  ListenerFile(int visible, int kernel);

  // Puts the file in the place of the program's descriptor `fd`, which keeps its flags. Throws
  // Error.
  void replace(int fd) const;
  [[nodiscard]] bool is_file_of(int fd) const;
  // Whether clients in the kernel's queue make it readable. At first they do not.
  void show_kernel_queue(bool shown) const;

 private:
  const EpollSet epoll_;
  const int kernel_;
};

}  // namespace weft::interpose
