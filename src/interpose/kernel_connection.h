// Connections that are left to the kernel's TCP (see Destinations): the program's descriptor is the
// kernel's socket, and its calls are the kernel's own.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "interpose/socket.h"

namespace weft::interpose {

// Connects `socket`, whose descriptor is `fd`, by the kernel if that is offered and wanted. Returns
// 0 or an errno value, as connect(2); nothing if the connection is to be a stream.
[[nodiscard]] std::optional<int> connect_by_kernel(const std::shared_ptr<Socket>& socket, int fd,
                                                   const stream::Address& peer);
// Before such a connection is closed: learns how much it has carried. Costs one load for other
// descriptors.
void note_end_of_kernel_connection(int fd);

// The key by which the server knows such a connection (agreed_key) waits in the kernel for the
// first bytes of the program: then one segment carries both, and wakes the server once. A program
// that first waits for the server must let it go, because the server accepts when it has the key.
// Where no call below sees that, the kernel sends it after 200 ms (MSG_MORE, send(2)).
extern std::atomic<int> kept_keys;  // how many connections have one that waits
void send_kept_key(int fd);
void forget_kept_key(int fd);

// Before the program waits for bytes from `fd`, or may do so where it is not seen.
inline void let_key_go(int fd) {
  if (kept_keys.load(std::memory_order_relaxed) != 0) [[unlikely]]
    send_kept_key(fd);
}
// Before the program sends.
inline void note_key_goes(int fd) {
  if (kept_keys.load(std::memory_order_relaxed) != 0) [[unlikely]]
    forget_kept_key(fd);
}

}  // namespace weft::interpose
