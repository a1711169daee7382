// Connections that are left to the kernel's TCP (see Destinations): the program's descriptor is the
// kernel's socket, and its calls are the kernel's own.
#pragma once

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

}  // namespace weft::interpose
