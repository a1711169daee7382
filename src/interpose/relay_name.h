// A connection that a program inherits by fork(2) and exec is a pipe to a relay, and all that the
// program knows of it is the descriptor. So the relay's end has a name in the abstract namespace
// (unix(7)) that holds the addresses of the connection.
#pragma once

#include <sys/socket.h>

#include <optional>

namespace weft::interpose {

struct RelayNames {
  sockaddr_storage local{};
  sockaddr_storage peer{};
};

// Names the relay's end of a pair. Where that fails, the program sees a local socket.
void name_relay(int relay_end, const RelayNames& names);
// Of the pair whose other end is `fd`; nothing where `fd` is no pipe to a relay of this user or of
// root.
[[nodiscard]] std::optional<RelayNames> relay_names(int fd);

}  // namespace weft::interpose
