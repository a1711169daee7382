// Converts addresses of sockets to those of streams and back.
#include "interpose/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

#include "weft/error.hpp"

namespace weft::interpose {
namespace {

sockaddr_storage ipv4(const char* host, std::uint16_t port) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in&>(storage);
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, host, &address.sin_addr), 1);
  return storage;
}

sockaddr_storage ipv6(const char* host, std::uint16_t port) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in6&>(storage);
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET6, host, &address.sin6_addr), 1);
  return storage;
}

stream::Address read(const sockaddr_storage& address, bool connecting = false) {
  return to_address(reinterpret_cast<const sockaddr*>(&address), sizeof address, connecting);
}

int refusal(const sockaddr* address, socklen_t bytes) {
  try {
    (void)to_address(address, bytes, false);
  } catch (const Error& error) {
    return error.error_number();
  }
  return 0;
}

std::string text_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
    return std::string(text.data()) + " " + std::to_string(ntohs(four.sin_port));
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
  return std::string(text.data()) + " " + std::to_string(ntohs(six.sin6_port));
}

TEST(InterposeAddress, IsReadInBothFamilies) {
  EXPECT_EQ(read(ipv4("192.0.2.1", 7174)).host, "192.0.2.1");
  EXPECT_EQ(read(ipv4("192.0.2.1", 7174)).port, 7174);
  EXPECT_EQ(read(ipv6("2001:db8::1", 80)).host, "2001:db8::1");
  EXPECT_EQ(read(ipv6("::ffff:192.0.2.1", 80)).host, "192.0.2.1");
}

TEST(InterposeAddress, TheUnspecifiedAddressConnectsToThisHost) {
  EXPECT_EQ(read(ipv4("0.0.0.0", 1), true).host, "127.0.0.1");
  EXPECT_EQ(read(ipv6("::", 1), true).host, "::1");
  EXPECT_EQ(read(ipv4("0.0.0.0", 1)).host, "0.0.0.0");
  EXPECT_EQ(read(ipv6("::", 1)).host, "::");
}

TEST(InterposeAddress, AnInvalidOneIsRefused) {
  const auto good = ipv6("::1", 1);
  const auto* raw = reinterpret_cast<const sockaddr*>(&good);
  EXPECT_EQ(refusal(nullptr, 100), EFAULT);
  EXPECT_EQ(refusal(nullptr, 1000), EINVAL);
  EXPECT_EQ(refusal(raw, 1), EINVAL);
  EXPECT_EQ(refusal(raw, sizeof(sockaddr_in6) - 1), EINVAL);
  EXPECT_EQ(refusal(raw, sizeof(sockaddr_in6)), 0);
  sockaddr_storage local{};
  local.ss_family = AF_UNIX;
  EXPECT_EQ(refusal(reinterpret_cast<const sockaddr*>(&local), sizeof local), EAFNOSUPPORT);
}

TEST(InterposeAddress, IsReturnedInTheFamilyOfTheSocket) {
  EXPECT_EQ(text_of(parse_address("192.0.2.1:7174", AF_INET)), "192.0.2.1 7174");
  EXPECT_EQ(text_of(parse_address("192.0.2.1:7174", AF_INET6)), "::ffff:192.0.2.1 7174");
  EXPECT_EQ(text_of(parse_address("[2001:db8::1]:65535", AF_INET6)), "2001:db8::1 65535");
  for (const char* none : {"", "192.0.2.1", "nobody:1", "[::1:1"}) {
    EXPECT_EQ(text_of(parse_address(none, AF_INET)), "0.0.0.0 0") << none;
  }
}

TEST(InterposeAddress, IsCutToTheRoomAndReturnsItsWholeSize) {
  const auto from = ipv4("192.0.2.1", 7174);
  std::array<char, 20> into;
  into.fill('x');
  socklen_t bytes = 6;
  copy_out(from, reinterpret_cast<sockaddr*>(into.data()), &bytes);
  EXPECT_EQ(bytes, sizeof(sockaddr_in));
  EXPECT_EQ(std::memcmp(into.data(), &from, 6), 0);
  EXPECT_EQ(into[6], 'x');
  copy_out(from, nullptr, nullptr);
}

}  // namespace
}  // namespace weft::interpose
