// Multicast groups: which queue pairs receive a datagram to a group.
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "device/addresses.h"
#include "device/datagram/datagrams.h"
#include "device/datagram_end.h"
#include "device/limits.h"

namespace weft::device {
namespace {

ibv_gid group_of(const std::string& address) {
  sockaddr_storage parsed{};
  EXPECT_TRUE(parse_address(address, parsed));
  return gid_of(parsed);
}

// Each queue pair has a device of its own, like different processes of one host.
class Multicast : public ::testing::Test {
 protected:
  void SetUp() override {
    source->fill(4);
    if (join(a, probe_group) != 0) GTEST_SKIP() << "no IPv4 multicast on the loopback interface";
    ASSERT_EQ(leave(a, probe_group), 0);
  }

  static int join(DatagramEnd& end, const ibv_gid& to) {
    return end.context.device().datagrams().attach(end.queue_pair, to);
  }
  static int leave(DatagramEnd& end, const ibv_gid& from) {
    return end.context.device().datagrams().detach(*end.queue_pair, from);
  }
  int send(const ibv_gid& to, std::uint32_t bytes, std::uint32_t key = test_key) {
    const int failed = a.send_to(to, multicast_queue_pair, {source->sge(0, bytes)}, key);
    EXPECT_EQ(a.await().opcode, IBV_WC_SEND);
    return failed;
  }
  void expect_receive(DatagramEnd& end, Buffer& target, std::uint32_t bytes) {
    const ibv_wc received = end.await();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.byte_len, grh_bytes + bytes);
    EXPECT_EQ(received.src_qp, a.number());
    EXPECT_EQ(std::memcmp(target.bytes().data() + grh_bytes, source->bytes().data(), bytes), 0);
  }

  static constexpr std::size_t size = 200;
  const ibv_gid group = group_of("239.192.7.1");
  const ibv_gid other_group = group_of("239.192.7.2");
  const ibv_gid probe_group = group_of("239.192.7.3");
  std::unique_ptr<Device> devices[3] = {make_roce_device(), make_roce_device(), make_roce_device()};
  DatagramEnd a{*devices[0]};
  DatagramEnd b{*devices[1]};
  DatagramEnd c{*devices[2]};
  std::unique_ptr<Buffer> source = a.buffer(size);
  std::unique_ptr<Buffer> at_b = b.buffer(size);
  std::unique_ptr<Buffer> at_c = c.buffer(size);
};

TEST_F(Multicast, ReachesEveryMember) {
  ASSERT_EQ(join(b, group), 0);
  ASSERT_EQ(join(c, group), 0);
  ASSERT_EQ(b.post_receive(1, {at_b->sge(0, size)}), 0);
  ASSERT_EQ(c.post_receive(1, {at_c->sge(0, size)}), 0);
  ASSERT_EQ(send(group, 50), 0);
  expect_receive(b, *at_b, 50);
  expect_receive(c, *at_c, 50);
  const auto header = wire::Ipv4Header::parse(std::as_bytes(at_b->bytes()).subspan(20));
  ASSERT_TRUE(header);
  EXPECT_EQ(header->destination[0], std::byte{239}) << "the header names the group";
}

TEST_F(Multicast, TwoMembersOfOneProcessGetACopyEach) {
  DatagramEnd also(*devices[1]);
  auto at_also = also.buffer(size);
  ASSERT_EQ(join(b, group), 0);
  ASSERT_EQ(join(also, group), 0);
  ASSERT_EQ(b.post_receive(1, {at_b->sge(0, size)}), 0);
  ASSERT_EQ(also.post_receive(1, {at_also->sge(0, size)}), 0);
  ASSERT_EQ(send(group, 20), 0);
  expect_receive(b, *at_b, 20);
  expect_receive(also, *at_also, 20);
}

TEST_F(Multicast, OthersGetNothing) {
  ASSERT_EQ(join(b, group), 0);
  ASSERT_EQ(join(c, group), 0);
  ASSERT_EQ(join(c, other_group), 0);
  ASSERT_EQ(b.post_receive(1, {at_b->sge(0, size)}), 0);
  ASSERT_EQ(c.post_receive(1, {at_c->sge(0, size)}), 0);
  ASSERT_EQ(send(other_group, 10), 0);
  expect_receive(c, *at_c, 10);
  ASSERT_EQ(send(group, 11, test_key + 1), 0);  // a wrong Q_Key is dropped here too
  ASSERT_EQ(leave(c, group), 0);
  ASSERT_EQ(c.post_receive(2, {at_c->sge(0, size)}), 0);
  ASSERT_EQ(send(group, 12), 0);
  expect_receive(b, *at_b, 12);
  ASSERT_EQ(send(other_group, 13), 0);
  expect_receive(c, *at_c, 13);
}

TEST_F(Multicast, AMemberHearsItself) {
  auto back = a.buffer(size);
  ASSERT_EQ(join(a, group), 0);
  ASSERT_EQ(a.post_receive(1, {back->sge(0, size)}), 0);
  ASSERT_EQ(a.send_to(group, multicast_queue_pair, {source->sge(0, 9)}), 0);
  int receives = 0;
  for (int i = 0; i < 2; ++i) receives += a.await().opcode == IBV_WC_RECV ? 1 : 0;
  EXPECT_EQ(receives, 1);
}

TEST_F(Multicast, JoiningTwiceIsJoiningOnce) {
  ASSERT_EQ(join(b, group), 0);
  ASSERT_EQ(join(b, group), 0);
  ASSERT_EQ(leave(b, group), 0);
  EXPECT_EQ(leave(b, group), EINVAL);
  EXPECT_EQ(leave(b, other_group), EINVAL);
  EXPECT_EQ(join(b, b.gid()), EINVAL) << "no group";
}

// A group in InfiniBand's form (an IPv6 multicast GID) on a device with an IPv4 address.
TEST_F(Multicast, AGroupOfTheOtherKindHasASubstitute) {
  const ibv_gid native = group_of("ff0e::1:2:3");
  ASSERT_EQ(join(b, native), 0);
  ASSERT_EQ(b.post_receive(1, {at_b->sge(0, size)}), 0);
  ASSERT_EQ(send(native, 30), 0);
  expect_receive(b, *at_b, 30);
}

TEST_F(Multicast, AGroupOutlivesOneOfItsMembers) {
  ASSERT_EQ(join(b, group), 0);
  {
    DatagramEnd gone(*devices[1]);
    ASSERT_EQ(join(gone, group), 0);
  }
  ASSERT_EQ(b.post_receive(1, {at_b->sge(0, size)}), 0);
  ASSERT_EQ(send(group, 5), 0);
  expect_receive(b, *at_b, 5);
}

// The index of the interface from which this process's socket at the port of the groups takes
// packets; 0: from all of them. Nothing where there is no such socket.
std::optional<int> interface_of_groups() {
  for (int fd = 0; fd < static_cast<int>(sys::descriptor_limit()); ++fd) {
    sockaddr_storage address{};
    if (sys::local_address(fd, &address) < 0 || port_of(address) != multicast_port) continue;
    int index = -1;
    socklen_t bytes = sizeof index;
    if (sys::get_option(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, &bytes) < 0) continue;
    return index;
  }
  return std::nullopt;
}

// What the kernel allows a socket of this process: Linux before 5.7 wants CAP_NET_RAW.
bool may_choose_interface() {
  const sys::Descriptor probe(sys::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto loopback = static_cast<int>(if_nametoindex("lo"));
  return sys::set_option(probe.get(), SOL_SOCKET, SO_BINDTOIFINDEX, loopback) == 0;
}

// The port is bound to no address, but a device of 127.0.0.1 takes nothing from other interfaces.
TEST_F(Multicast, ThePortIsThatOfTheInterfaceOfTheGids) {
  if (!may_choose_interface()) GTEST_SKIP() << "the kernel does not bind sockets to interfaces";
  // The first of them was opened to probe (SetUp()).
  const auto index = interface_of_groups();
  ASSERT_TRUE(index);
  EXPECT_EQ(*index, static_cast<int>(if_nametoindex("lo")));
}

struct SilentReceiver : DatagramReceiver {
  void take_datagram(const Datagram& /*datagram*/) override {}
  void datagram_room() override {}
};

// The IPv6 group is full because of members that have joined it by its own name; the IPv4 group of
// the other name is not.
TEST(MulticastFamilies, AMembershipThatFailsInOneFamilyIsUndoneInTheOther) {
  Settings settings;
  settings.gids = GidTable::all;
  const auto made = Device::create(settings);
  ASSERT_TRUE(made) << made.error();
  const auto& device = *made;
  const auto has = [&](int family) {
    return std::ranges::any_of(device->addresses(), [&](const LocalAddress& local) {
      return local.address.ss_family == family;
    });
  };
  if (!has(AF_INET) || !has(AF_INET6)) GTEST_SKIP() << "no addresses of both families";
  const ibv_gid group = group_of("239.192.7.4");
  const ibv_gid same_in_ipv6 = gid_of(multicast_address(group, AF_INET6));
  Datagrams& datagrams = device->datagrams();
  std::vector<std::shared_ptr<SilentReceiver>> receivers;
  for (int i = 0; i < limits::max_multicast_members; ++i) {
    receivers.push_back(std::make_shared<SilentReceiver>());
    const int failed = datagrams.attach(receivers.back(), same_in_ipv6);
    if (failed != 0 && i == 0) GTEST_SKIP() << "no multicast here";
    ASSERT_EQ(failed, 0);
  }
  const auto late = std::make_shared<SilentReceiver>();
  EXPECT_EQ(datagrams.attach(late, group), ENOMEM);
  EXPECT_EQ(datagrams.detach(*late, group), EINVAL) << "it is still a member in one family";
}

}  // namespace
}  // namespace weft::device
