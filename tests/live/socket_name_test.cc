#include "live/socket_name.h"

#include <gtest/gtest.h>

namespace weft::live {
namespace {

TEST(SocketName, HasTheProcessNumber) {
  EXPECT_EQ(socket_name(17, 0xAB), "weft-top/17/00000000000000ab");
  EXPECT_EQ(pid_of(socket_name(17, 0xAB)), 17);
}

TEST(SocketName, OthersHaveNone) {
  for (const char* name :
       {"", "weft-top/", "weft-top/17", "weft-top//1", "weft-top/0/1", "weft-top/-3/1",
        "weft-top/17x/1", "weft-top/99999999999/1", "weft-local/17/1", "/weft-top/17/1"}) {
    EXPECT_FALSE(pid_of(name)) << name;
  }
}

TEST(SocketName, AddressIsAbstract) {
  const SocketAddress address = address_of("weft-top/1/2");
  EXPECT_EQ(address.address.sun_path[0], '\0');
  EXPECT_EQ(std::string(address.address.sun_path + 1), "weft-top/1/2");
  EXPECT_EQ(address.bytes, offsetof(sockaddr_un, sun_path) + 1 + 12);
}

}  // namespace
}  // namespace weft::live
