// Sockets whose peer has decided to write a byte to the bell, and has not done so yet: usually for
// microseconds, and longer where it has lost its processor. When the byte comes there is nothing to
// receive any more, so a program that waits should not see it.
#pragma once

#include <memory>

namespace weft::interpose {

class Socket;

// Thread-safe. `socket` lacks a byte.
void note_late_bell(const std::weak_ptr<Socket>& socket);
// Takes the bytes that have come meanwhile. Costs one load where none is missing.
void drop_late_bells();
[[nodiscard]] bool has_late_bells();
// In the child after fork(2): the bells are the parent's.
void forget_late_bells();

}  // namespace weft::interpose
