// HalfOpen: the places of connections whose request is not here yet, by the address of the peer.
#include "device/connect/half_open.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <memory>
#include <string>
#include <vector>

#include "device/connect/inbound_handshake.h"
#include "device/raw_end.h"

namespace weft::device {
namespace {

constexpr std::size_t places = 16;
constexpr std::size_t share = places / 2;  // of one source

sockaddr_storage peer(const std::string& text) {
  sockaddr_storage address{};
  if (text.find(':') == std::string::npos) {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
    ipv4.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr), 1) << text;
  } else {
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
    ipv6.sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &ipv6.sin6_addr), 1) << text;
  }
  return address;
}

class HalfOpenPlaces : public ::testing::Test {
 protected:
  std::shared_ptr<InboundHandshake> arrive(const std::string& from) {
    const auto ignore = [](const auto&) {};
    auto inbound = std::make_shared<InboundHandshake>(*device_, StreamSocket(),
                                                      iwarp::HandshakeOptions(), ignore, ignore);
    half_open_.add(inbound, peer(from), ++time_ns_);
    arrived_.push_back(inbound);
    return inbound;
  }
  void leave(const std::shared_ptr<InboundHandshake>& inbound) { half_open_.remove(*inbound); }
  bool crowded(const std::string& from) { return half_open_.crowded(peer(from)); }
  std::shared_ptr<InboundHandshake> oldest_from(const std::string& from) {
    return half_open_.oldest_from(peer(from));
  }

  HalfOpen half_open_{places};

 private:
  std::unique_ptr<Device> device_ = make_roce_device();
  std::vector<std::shared_ptr<InboundHandshake>> arrived_;
  std::uint64_t time_ns_ = 0;
};

// One host usually has all addresses of a /64.
TEST_F(HalfOpenPlaces, ASourceOfIpv6IsItsFirst64Bits) {
  const auto first = arrive("2001:db8:0:1::1");
  for (std::size_t i = 1; i < share; ++i) {
    EXPECT_FALSE(crowded("2001:db8:0:1::1"));
    arrive("2001:db8:0:1:" + std::to_string(i) + "::" + std::to_string(i));
  }
  EXPECT_TRUE(crowded("2001:db8:0:1::1"));
  EXPECT_TRUE(crowded("2001:db8:0:1:ffff:ffff:ffff:ffff"));  // of the same /64
  EXPECT_EQ(oldest_from("2001:db8:0:1:abcd::"), first);
  EXPECT_FALSE(crowded("2001:db8:0:2::1"));
  EXPECT_EQ(oldest_from("2001:db8:0:2::1"), nullptr);
  leave(first);
  EXPECT_FALSE(crowded("2001:db8:0:1::1"));
}

TEST_F(HalfOpenPlaces, ASourceOfIpv4IsOneAddress) {
  const auto first = arrive("192.0.2.1");
  for (std::size_t i = 1; i < share; ++i) arrive("192.0.2.1");
  EXPECT_TRUE(crowded("192.0.2.1"));
  EXPECT_TRUE(crowded("::ffff:192.0.2.1"));  // as a listener of both families sees it
  EXPECT_FALSE(crowded("192.0.2.2"));
  EXPECT_EQ(oldest_from("192.0.2.1"), first);
  EXPECT_EQ(oldest_from("192.0.2.2"), nullptr);
}

TEST_F(HalfOpenPlaces, TheOldestOfAllAreFoundFirst) {
  const auto first = arrive("192.0.2.1");
  const auto second = arrive("192.0.2.2");
  EXPECT_EQ(half_open_.oldest(3), first);
  EXPECT_EQ(half_open_.oldest(1), nullptr);  // too young
  leave(first);
  EXPECT_EQ(half_open_.oldest(3), second);
}

}  // namespace
}  // namespace weft::device
