// Descriptors that one process passes to another in a message of a local socket (SCM_RIGHTS,
// unix(7)).
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <vector>

namespace weft::interpose {

// A message of the program as it goes to the kernel: with the kernel's sockets in the place of
// those that only this process can use. Refers to what the program's message refers to.
class PassingMessage {
 public:
  // See Socket::descriptor_to_pass().
  explicit PassingMessage(const msghdr& message);

  // Null with errno if a socket cannot be passed.
  [[nodiscard]] const msghdr* get() const { return possible_ ? &message_ : nullptr; }

 private:
  [[nodiscard]] bool prepare(cmsghdr& part);

  msghdr message_;
  std::vector<std::byte> control_;  // a copy of the program's, if there are descriptors in it
  bool possible_ = true;
};

}  // namespace weft::interpose
