// Addresses with ports, as the device's calls give and take them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "simulation/network.h"

namespace weft::simulation {

inline void put(sockaddr_storage& address, const Place& place) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ipv4.sin_addr.s_addr = htonl(place.address);
  ipv4.sin_port = htons(place.port);
  address = {};
  std::memcpy(&address, &ipv4, sizeof ipv4);
}

inline Place place_of(const sockaddr* address) {
  sockaddr_in ipv4{};
  std::memcpy(&ipv4, address, sizeof ipv4);
  return {.address = ntohl(ipv4.sin_addr.s_addr), .port = ntohs(ipv4.sin_port)};
}

}  // namespace weft::simulation
