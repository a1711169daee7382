// The LIDs of addresses, and the addresses that are found by a LID.
#include "device/lid.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace weft::device {
namespace {

sockaddr_storage address(const std::string& text) {
  sockaddr_storage parsed{};
  EXPECT_TRUE(parse_address(text, parsed)) << text;
  return parsed;
}

sockaddr_storage address(std::uint32_t ipv4) {
  sockaddr_storage made{};
  made.ss_family = AF_INET;
  reinterpret_cast<sockaddr_in&>(made).sin_addr.s_addr = htonl(ipv4);
  return made;
}

LocalAddress local(const std::string& text, unsigned prefix_bits) {
  LocalAddress made;
  made.address = address(text);
  made.prefix_bits = prefix_bits;
  return made;
}

std::vector<sockaddr_storage> knows_nothing(const LocalAddress&) {
  return {};
}

// The address without a port that `local` finds by the LID; "none" if there is none.
std::string found(const LocalAddress& from, std::uint16_t lid,
                  KnownAddresses known = knows_nothing) {
  const auto one = find_by_lid(from, lid, known);
  if (!one) return "none";
  const std::string text = to_string(*one);
  return text.substr(0, text.rfind(':'));
}

TEST(Lids, AreTheLowBitsOfAnAddress) {
  EXPECT_EQ(lid_of(address("127.0.0.1")), 1);
  EXPECT_EQ(lid_of(address("10.0.3.4")), 0x0304);
  EXPECT_EQ(lid_of(address("192.168.191.255")), 0xBFFF);
  EXPECT_EQ(lid_of(address("192.168.192.0")), 0x4000) << "the LIDs from 0xC000 are those of groups";
  EXPECT_EQ(lid_of(address("192.168.255.254")), 0x7FFE);
  EXPECT_EQ(lid_of(address("10.1.0.0")), 0);
  EXPECT_EQ(lid_of(address("::1")), 0);
}

TEST(Lids, AddressesWithoutOneAreNamed) {
  EXPECT_EQ(check_lid(local("127.0.0.1", 8)), "");
  EXPECT_EQ(check_lid(local("192.168.200.5", 16)), "");
  EXPECT_NE(check_lid(local("10.1.0.0", 8)).find("the address 10.1.0.0 has no LID"),
            std::string::npos);
  EXPECT_NE(check_lid(local("::1", 0)).find("the address [::1] has no LID"), std::string::npos);
}

// With 17 bits of prefix or more, no two addresses of a subnet share a LID.
TEST(Lids, EveryAddressOfASubnetIsFoundByItsLid) {
  for (const char* own : {"10.0.0.1", "10.0.127.9", "10.0.128.1", "10.0.192.7", "10.0.255.1"}) {
    const LocalAddress from = local(own, 17);
    const std::uint32_t base =
        ntohl(reinterpret_cast<const sockaddr_in&>(from.address).sin_addr.s_addr) & 0xFFFF8000U;
    for (std::uint32_t low = 0; low < 0x8000; ++low) {
      const sockaddr_storage peer = address(base | low);
      if (lid_of(peer) == 0) continue;
      const auto one = find_by_lid(from, lid_of(peer), knows_nothing);
      ASSERT_TRUE(one && same_host_address(*one, peer)) << to_string(peer);
    }
  }
}

TEST(Lids, LidsOfGroupsAndLidZeroAreNone) {
  for (const std::uint16_t lid : {std::uint16_t{0}, std::uint16_t{0xC000}, std::uint16_t{0xFFFF}}) {
    EXPECT_EQ(found(local("10.0.0.1", 24), lid), "none") << lid;
  }
}

// A router joins such subnets. Where a LID lacks bit 15, it is that of the own subnet.
TEST(Lids, ReachOtherSubnetsWithTheSameHighBits) {
  EXPECT_EQ(found(local("10.0.0.1", 24), 0x0102), "10.0.1.2");
  EXPECT_EQ(found(local("10.0.0.1", 24), 0x8102), "10.0.129.2");
  EXPECT_EQ(found(local("10.0.129.1", 24), 0x0102), "10.0.1.2");
  EXPECT_EQ(found(local("10.0.129.1", 24), 0x4102), "10.0.193.2");
  EXPECT_EQ(found(local("10.0.0.1", 24), 0x4102), "10.0.65.2");
}

TEST(Lids, InALargeSubnetKnownAddressesAreAsked) {
  const auto one = [](const LocalAddress&) {
    return std::vector{address("10.7.1.2"), address("11.9.1.2"), address("10.8.1.3"),
                       address("fe80::102")};
  };
  EXPECT_EQ(found(local("10.0.0.1", 8), 0x0102, one), "10.7.1.2");
  EXPECT_EQ(found(local("10.0.0.1", 24), 0x0102, one), "10.0.1.2") << "nothing to ask";
  EXPECT_EQ(found(local("10.0.0.1", 8), 0x0104, one), "10.0.1.4") << "none is known";
  EXPECT_EQ(found(local("10.0.0.1", 8), 1, one), "10.0.0.1") << "its own LID";
  const auto bit = [](const LocalAddress&) { return std::vector{address("172.16.200.5")}; };
  EXPECT_EQ(found(local("172.16.0.1", 16), 0x4805, bit), "172.16.200.5");
  EXPECT_EQ(found(local("172.16.0.1", 16), 0x4805), "172.16.72.5");
  EXPECT_EQ(found(local("127.0.0.1", 8), 2), "127.0.0.2");
}

TEST(Lids, TwoKnownAddressesWithALidAreNoAnswer) {
  const auto two = [](const LocalAddress&) {
    return std::vector{address("10.7.1.2"), address("10.7.1.2"), address("10.8.1.2")};
  };
  EXPECT_EQ(found(local("10.0.0.1", 8), 0x0102, two), "10.0.1.2");
}

TEST(Lids, TheAddressesOfThisHostAreKnown) {
  bool loopback = false;
  for (const sockaddr_storage& one : known_addresses(local("127.0.0.1", 8))) {
    if (same_host_address(one, address("127.0.0.1"))) loopback = true;
  }
  EXPECT_TRUE(loopback);
}

}  // namespace
}  // namespace weft::device
