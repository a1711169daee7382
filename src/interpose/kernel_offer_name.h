// The names in the abstract namespace (unix(7)) by which programs of one host agree to leave
// connections to the kernel's TCP. They are derived from TCP addresses, so nothing is exchanged.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weft/stream/options.hpp"

namespace weft::interpose {

// Which connections a server would rather have from the kernel.
enum class OfferedFor {
  brief_connections,  // those that end after a few requests: a stream costs more than it saves
  all_connections,    // several processes have the listening socket: streams could not leave TCP
};

struct OfferName {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

// The name of a socket that listens. Empty if it must not be offered, because sockets of other
// programs may listen at the same port (SO_REUSEPORT).
[[nodiscard]] std::string offered_address(int kernel);
// The same for a socket that would accept connections to `peer`, the most specific first.
[[nodiscard]] std::vector<std::string> offered_addresses(const stream::Address& peer);
[[nodiscard]] OfferName offer_name(const std::string& address, OfferedFor kind);
// True if the user who has made the offer to which `local_socket` is connected may speak for the
// TCP port: this user, root, or the one whose sockets listen there. Any other user could take the
// name of a server that makes no offer, and let its clients send it what it does not understand.
[[nodiscard]] bool may_offer(int local_socket, std::uint16_t port);

}  // namespace weft::interpose
