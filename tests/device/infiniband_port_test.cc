// The personality ib: a port with a LID, queue pairs and address handles that know LIDs only, and
// the same with a GID.
#include <algorithm>
#include <cstring>

#include "device/addresses.h"
#include "device/datagram_end.h"
#include "device/gid_table.h"
#include "device/lid.h"
#include "device/query.h"
#include "device/sysfs.h"
#include "wire/ip.h"

namespace weft::device {
namespace {

constexpr std::uint16_t localhost_lid = 1;

// Attributes of the step to RTR as a program has them that knows no GIDs.
ibv_qp_attr rtr_by_lid(std::uint16_t lid, std::uint32_t number) {
  ibv_gid arbitrary{};
  std::fill(std::begin(arbitrary.raw), std::end(arbitrary.raw), std::uint8_t{0xA5});
  ibv_qp_attr attributes = RawEnd::rtr_attributes(arbitrary, number);
  attributes.ah_attr.is_global = 0;
  attributes.ah_attr.grh.sgid_index = 0xA5;
  attributes.ah_attr.dlid = lid;
  return attributes;
}

std::string text_of(const ibv_gid& gid) {
  std::string text;
  for (const std::uint8_t byte : gid.raw) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

class InfinibandPort : public ::testing::Test {
 protected:
  std::unique_ptr<Device> left_ = make_ib_device();
  std::unique_ptr<Device> right_ = make_ib_device();
};

TEST_F(InfinibandPort, LooksLikeOneWithASubnetManager) {
  Context context(*left_);
  ibv_port_attr port{};
  ASSERT_EQ(query_port(context, 1, &port, sizeof port), 0);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.lid, localhost_lid);
  EXPECT_EQ(port.sm_lid, localhost_lid);
  EXPECT_EQ(port.flags & IBV_QPF_GRH_REQUIRED, 0);
  EXPECT_EQ(port.port_cap_flags & IBV_PORT_IP_BASED_GIDS, 0U);
  EXPECT_EQ(port.gid_tbl_len, 1);
  EXPECT_EQ(sysfs_text(*left_, "ports/1/lid"), "0x1");
  EXPECT_EQ(sysfs_text(*left_, "ports/1/sm_lid"), "0x1");
  EXPECT_EQ(sysfs_text(*left_, "ports/1/link_layer"), "InfiniBand");
  EXPECT_EQ(sysfs_text(*left_, "ports/1/gids/0"), "fe80:0000:0000:0000:0277:65ff:7f00:0001");
  EXPECT_EQ(sysfs_text(*left_, "ports/1/gid_attrs/types/0"), "IB/RoCE v1") << "the kernel's name";
  EXPECT_EQ(sysfs_text(*left_, "ports/1/gid_attrs/ndevs/0"), std::nullopt);
}

TEST_F(InfinibandPort, TheGidIsTheSubnetPrefixAndTheGuid) {
  Context context(*left_);
  ibv_gid gid{};
  ASSERT_EQ(query_gid(context, 1, 0, gid), 0);
  EXPECT_EQ(text_of(gid), "fe80000000000000027765ff7f000001");
  EXPECT_EQ(gid.global.interface_id, left_->guid_be());
  ibv_gid_entry entry{};
  ASSERT_EQ(query_gid_entry(context, 1, 0, entry), 0);
  EXPECT_EQ(text_of(entry.gid), text_of(gid));
  EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_IB));
  EXPECT_EQ(entry.ndev_ifindex, 0U) << "of an InfiniBand port";
  EXPECT_EQ(query_gid(context, 1, 1, gid), EINVAL);
}

TEST_F(InfinibandPort, QueuePairsConnectByLid) {
  RawEnd a(*left_), b(*right_);
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(a.queue_pair->modify(rtr_by_lid(localhost_lid, b.number()), rtr_mask), 0);
  ASSERT_EQ(b.queue_pair->modify(rtr_by_lid(localhost_lid, a.number()), rtr_mask), 0);
  ASSERT_EQ(a.to_rts(), 0);
  ASSERT_EQ(b.to_rts(), 0);
  pass_message(a, b);
  pass_message(b, a);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  a.queue_pair->query(attributes, initial);
  EXPECT_EQ(attributes.ah_attr.is_global, 0);
  EXPECT_EQ(attributes.ah_attr.dlid, localhost_lid);
}

// One program may set a GRH where its peer does not.
TEST_F(InfinibandPort, QueuePairsConnectByGidAsWell) {
  RawEnd a(*left_), b(*right_);
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(a.to_rtr(b.gid(), b.number()), 0);
  ASSERT_EQ(b.queue_pair->modify(rtr_by_lid(localhost_lid, a.number()), rtr_mask), 0);
  ASSERT_EQ(a.to_rts(), 0);
  ASSERT_EQ(b.to_rts(), 0);
  pass_message(a, b);
  pass_message(b, a);
}

TEST_F(InfinibandPort, ARoceDeviceIsReachedByTheGidOfItsAddress) {
  const auto roce = make_roce_device();
  RawEnd a(*left_), b(*roce);
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(a.to_rtr(b.gid(), b.number()), 0);
  ASSERT_EQ(b.to_rtr(b.gid(), a.number()), 0);
  ASSERT_EQ(a.to_rts(), 0);
  ASSERT_EQ(b.to_rts(), 0);
  pass_message(a, b);
}

TEST_F(InfinibandPort, ALidThatNoPortHasIsRefusedAndNamed) {
  RawEnd end(*left_);
  ASSERT_EQ(end.to_init(), 0);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(end.queue_pair->modify(rtr_by_lid(0, 0x700001), rtr_mask), EINVAL);
  EXPECT_EQ(end.queue_pair->modify(rtr_by_lid(0xC001, 0x700001), rtr_mask), EINVAL);
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("LID 0 "), std::string::npos) << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << "once for each process: " << line;
  EXPECT_EQ(end.state(), IBV_QPS_INIT);
}

// Sends a datagram from `from` to `to` by LID and returns its completion.
ibv_wc send_by_lid(DatagramEnd& from, DatagramEnd& to, Buffer& source, Buffer& sink) {
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  attributes.dlid = localhost_lid;
  const std::unique_ptr<AddressHandle> handle(AddressHandle::create(*from.domain, attributes));
  EXPECT_NE(handle, nullptr);
  EXPECT_EQ(to.post_receive(1, {sink.sge(0, sink.bytes().size())}), 0);
  ibv_send_wr request = DatagramEnd::plain();
  request.wr.ud.ah = handle->verbs();
  request.wr.ud.remote_qpn = to.number();
  request.wr.ud.remote_qkey = test_key;
  EXPECT_EQ(from.post(request, {source.sge(0, 64)}), 0);
  EXPECT_EQ(from.await().status, IBV_WC_SUCCESS);
  return to.await();
}

TEST_F(InfinibandPort, DatagramsGoByLidAndHaveAGrhWithGids) {
  DatagramEnd a(*left_), b(*right_);
  const auto source = a.buffer(64);
  const auto sink = b.buffer(grh_bytes + 64);
  source->fill(7);
  const ibv_wc received = send_by_lid(a, b, *source, *sink);
  ASSERT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.slid, localhost_lid);
  EXPECT_EQ(received.sl, 0);
  EXPECT_EQ(std::memcmp(sink->bytes().data() + grh_bytes, source->bytes().data(), 64), 0);
  ibv_grh grh{};
  std::memcpy(&grh, sink->bytes().data(), sizeof grh);
  EXPECT_EQ(text_of(grh.sgid), text_of(a.gid()));
  EXPECT_EQ(text_of(grh.dgid), text_of(b.gid()));
  EXPECT_EQ(grh.next_hdr, 0x1B) << "InfiniBand Architecture Specification, volume 1, §8.3";
}

// ibv_create_ah_from_wc(3), with and without the GRH.
TEST_F(InfinibandPort, ADatagramIsAnswered) {
  DatagramEnd a(*left_), b(*right_);
  const auto source = a.buffer(64);
  const auto sink = b.buffer(grh_bytes + 64);
  ibv_wc received = send_by_lid(a, b, *source, *sink);
  ASSERT_EQ(received.status, IBV_WC_SUCCESS);
  auto* grh = reinterpret_cast<ibv_grh*>(sink->bytes().data());
  ibv_ah_attr back{};
  ASSERT_EQ(address_of_sender(b.context, 1, received, grh, back), 0);
  EXPECT_EQ(back.is_global, 1);
  EXPECT_EQ(back.dlid, localhost_lid);
  EXPECT_EQ(text_of(back.grh.dgid), text_of(a.gid()));
  EXPECT_EQ(back.grh.sgid_index, 0);
  EXPECT_NE(std::unique_ptr<AddressHandle>(AddressHandle::create(*b.domain, back)), nullptr);
  received.wc_flags &= ~static_cast<unsigned>(IBV_WC_GRH);
  ASSERT_EQ(address_of_sender(b.context, 1, received, nullptr, back), 0);
  EXPECT_EQ(back.is_global, 0);
  EXPECT_EQ(back.dlid, localhost_lid);
  EXPECT_NE(std::unique_ptr<AddressHandle>(AddressHandle::create(*b.domain, back)), nullptr);
}

// What programs must not notice elsewhere.
TEST(EthernetPort, HasNoLidAndShowsAddressesAsGids) {
  const auto device = make_roce_device();
  RawEnd end(*device);
  ibv_port_attr port{};
  ASSERT_EQ(query_port(end.context, 1, &port, sizeof port), 0);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.lid, 0);
  EXPECT_EQ(port.sm_lid, 0);
  EXPECT_EQ(text_of(end.gid()), "00000000000000000000ffff7f000001");
  EXPECT_EQ(sysfs_text(*device, "ports/1/lid"), "0x0");
}

}  // namespace
}  // namespace weft::device
