#include "device/connect/slots.h"

#include <set>
#include <string>

#include "device/datagram_end.h"
#include "support/own_ports.h"

namespace weft::device {
namespace {

TEST(SlotNumbers, NameAPortBelowTheEphemeralOnes) {
  EXPECT_EQ(slot::port_of(0x000010), 28672);
  EXPECT_EQ(slot::port_of(0xFFFFFE), 28672 + 1023);
  EXPECT_EQ(slot::port_of(slot::stream_of_cm), 28672 + 1023);
}

class SlotsOfAProcess : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_roce_device();
  Slots slots_{*device_, [](const auto& greeting) { greeting->cancel(); }};

  void TearDown() override { device_.reset(); }
};

TEST_F(SlotsOfAProcess, ComeBackLate) {
  const std::uint32_t first = slots_.take_number();
  ASSERT_NE(first, 0U);
  slots_.give_back(first);
  for (int i = 0; i < 5000; ++i) {
    const std::uint32_t number = slots_.take_number();
    EXPECT_NE(number, first);
    EXPECT_EQ(number >> slot::index_bits, first >> slot::index_bits);
    slots_.give_back(number);
  }
}

TEST_F(SlotsOfAProcess, AreSeveralWhereOneIsNotEnough) {
  std::set<std::uint32_t> numbers;
  std::set<std::uint32_t> used;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint32_t number = slots_.take_number();
    ASSERT_NE(number, 0U);
    ASSERT_LE(number, 0xFFFFFEU);
    ASSERT_GT(number, 1U);
    ASSERT_NE(number, slot::stream_of_cm);
    ASSERT_TRUE(numbers.insert(number).second) << "given twice";
    used.insert(number >> slot::index_bits);
  }
  EXPECT_EQ(used.size(), 2U);
  for (const std::uint32_t number : numbers) slots_.give_back(number);
  EXPECT_NE(slots_.take_number(), 0U);
}

TEST(Slots, OfOtherProcessesAreTheirs) {
  std::vector<std::unique_ptr<Device>> devices;
  std::set<std::uint32_t> used;
  for (int i = 0; i < 220; ++i) {
    devices.push_back(make_roce_device());
    const std::uint32_t number = devices.back()->take_queue_pair_number();
    ASSERT_NE(number, 0U);
    EXPECT_TRUE(used.insert(number >> slot::index_bits).second);
  }
}

// Connections of an exited process may still be in TIME_WAIT; its slot must be usable again.
TEST(Slots, CanBeHadAgainWhenTheirProcessIsGone) {
  const auto client = make_roce_device();
  auto server = make_roce_device();
  unsigned number = 0;
  {
    RawEnd here(*client);
    RawEnd there(*server);
    here.connect(there);
    there.connect(here);
    pass_message(here, there);
    number = there.number() >> slot::index_bits;
    std::vector<sys::Descriptor> sockets;
    EXPECT_EQ(slot::listen_at(number, server->addresses(), sockets), EADDRINUSE);
  }
  server.reset();
  std::vector<sys::Descriptor> sockets;
  EXPECT_EQ(slot::listen_at(number, client->addresses(), sockets), 0);
}

// A queue pair is found by its GID: the networks behind other addresses do not reach its process.
TEST(Slots, ListenOnTheAddressesOfTheGidsOnly) {
  const auto device = make_roce_device();
  const Context context(*device);
  const std::uint32_t number = device->take_queue_pair_number();
  for (const std::string text : {"127.0.0.1", "127.0.0.2"}) {
    sockaddr_storage address{};
    ASSERT_TRUE(parse_address(text, address));
    set_port(address, slot::port_of(number));
    const sys::Descriptor probe(sys::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int wanted = text == "127.0.0.1" ? 0 : -ECONNREFUSED;
    EXPECT_EQ(sys::connect(probe.get(), reinterpret_cast<sockaddr*>(&address), length_of(address)),
              wanted);
  }
}

// Those that were not open `before`.
std::set<test::OwnPort> opened_since(const std::set<test::OwnPort>& before) {
  std::set<test::OwnPort> found = test::own_ports();
  for (const test::OwnPort& old : before) found.erase(old);
  return found;
}

// The ports of a slot are bound to the address of the device and to loopback, whose IPv6 address
// the host may lack.
void expect_addresses(const std::set<test::OwnPort>& ports, const std::string& protocol,
                      std::uint32_t number) {
  bool at_the_gid = false;
  for (const test::OwnPort& each : ports) {
    EXPECT_EQ(each.port, slot::port_of(number)) << each.protocol << " at " << each.address;
    EXPECT_EQ(each.protocol, protocol);
    EXPECT_TRUE(each.address == "127.0.0.1" || each.address == "::1") << each.address;
    at_the_gid |= each.address == "127.0.0.1";
  }
  EXPECT_TRUE(at_the_gid) << protocol;
}

TEST(Slots, NothingListensBeforeAQueuePairIsWanted) {
  const auto before = test::own_ports();
  const auto device = make_roce_device();
  const Context context(*device);
  EXPECT_TRUE(opened_since(before).empty());
  const std::uint32_t number = device->take_queue_pair_number();
  const auto opened = opened_since(before);
  if (opened.empty()) GTEST_SKIP() << "no /proc/net/tcp here";
  expect_addresses(opened, "tcp", number);
}

TEST(Slots, DatagramsArriveAtTheAddressesOfTheGidsOnly) {
  const auto device = make_roce_device();
  const RawEnd connected(*device);  // which has opened the ports of TCP
  const auto before = test::own_ports();
  if (before.empty()) GTEST_SKIP() << "no /proc/net/tcp here";
  DatagramEnd end(*device);
  expect_addresses(opened_since(before), "udp", end.number());
}

}  // namespace
}  // namespace weft::device
