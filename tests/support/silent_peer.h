// A client of TCP that requests a connection, and says nothing more.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/descriptor.h"
#include "support/device.h"
#include "wire/mpa.h"

namespace weft::test {

// Asks a listener of test::host() for a connection that the first FPDU establishes (RFC 6581), and
// never sends one.
inline Descriptor silent_peer(std::uint16_t port, Bytes private_data) {
  const wire::MpaEnhanced enhanced{.peer_to_peer = true, .rtr_write = true, .ird = 8, .ord = 8};
  const wire::MpaFrame frame{.crc = true,
                             .enhanced = true,
                             .revision = 2,
                             .private_data_bytes = static_cast<std::uint16_t>(
                                 wire::MpaEnhanced::header_bytes + private_data.size())};
  std::vector<std::byte> request(wire::MpaFrame::header_bytes + wire::MpaEnhanced::header_bytes);
  frame.emit(request);
  enhanced.emit(std::span(request).subspan(wire::MpaFrame::header_bytes));
  request.insert(request.end(), private_data.begin(), private_data.end());
  Descriptor peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  EXPECT_EQ(::inet_pton(AF_INET, host().c_str(), &to.sin_addr), 1);
  EXPECT_EQ(::connect(peer.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  EXPECT_EQ(::send(peer.get(), request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  return peer;
}

// Waits for the reply to the request. Returns whether it was accepted.
inline bool was_accepted(const Descriptor& peer) {
  const auto receive = [&](std::span<std::byte> into) {
    return ::recv(peer.get(), into.data(), into.size(), MSG_WAITALL) ==
           static_cast<ssize_t>(into.size());
  };
  std::array<std::byte, wire::MpaFrame::header_bytes> reply{};
  if (!receive(reply)) return false;
  const auto frame = wire::MpaFrame::parse(reply);
  if (!frame.ok() || frame->reject) return false;
  std::vector<std::byte> private_data(frame->private_data_bytes);
  return receive(private_data);
}

}  // namespace weft::test
