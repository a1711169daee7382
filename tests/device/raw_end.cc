#include "device/raw_end.h"

#include "device/query.h"

namespace weft::device {

namespace {

std::unique_ptr<Device> make_device(Personality personality, const std::string& address) {
  Settings settings;
  settings.personality = personality;
  settings.address = address;
  settings.min_retry_time_ns = 100'000'000;
  set_carrier(settings);
  auto made = Device::create(settings);
  if (!made) throw std::runtime_error(made.error());
  return std::move(*made);
}

}  // namespace

std::unique_ptr<Device> make_roce_device(const std::string& address) {
  return make_device(Personality::roce, address);
}

std::unique_ptr<Device> make_ib_device() {
  return make_device(Personality::ib, "127.0.0.1");
}

ibv_gid RawEnd::gid() {
  ibv_gid gid{};
  EXPECT_EQ(query_gid(context, 1, 0, gid), 0);
  return gid;
}

int RawEnd::to_init() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = all_access;
  return queue_pair->modify(attributes,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

ibv_qp_attr RawEnd::rtr_attributes(const ibv_gid& gid, std::uint32_t number) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = number;
  attributes.max_dest_rd_atomic = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = gid;
  return attributes;
}

int RawEnd::to_rtr(const ibv_gid& gid, std::uint32_t number) {
  const int mask = type() == IBV_QPT_UC ? unreliable_rtr_mask : rtr_mask;
  return queue_pair->modify(rtr_attributes(gid, number), mask);
}

int RawEnd::to_rts(std::uint8_t timeout, std::uint8_t retries, std::uint8_t rnr_retries) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  if (type() == IBV_QPT_UC) return queue_pair->modify(attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
  attributes.timeout = timeout;
  attributes.retry_cnt = retries;
  attributes.rnr_retry = rnr_retries;
  attributes.max_rd_atomic = 1;
  return queue_pair->modify(attributes, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                            IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                            IBV_QP_MAX_QP_RD_ATOMIC);
}

int RawEnd::to(ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  return queue_pair->modify(attributes, IBV_QP_STATE);
}

void RawEnd::connect(RawEnd& peer, std::uint8_t rnr_retries) {
  EXPECT_EQ(to_init(), 0);
  EXPECT_EQ(to_rtr(peer.gid(), peer.number()), 0);
  // 34 s until a request fails: on a busy machine two ends may need long to find each other.
  EXPECT_EQ(to_rts(20, 7, rnr_retries), 0);
}

void RawEnd::connect_briefly(RawEnd& peer) {
  EXPECT_EQ(to_init(), 0);
  EXPECT_EQ(to_rtr(peer.gid(), peer.number()), 0);
  EXPECT_EQ(to_rts(), 0);
}

bool RawEnd::stays_quiet() {
  const std::uint64_t end = sys::now_ns() + 400'000'000;
  while (sys::now_ns() < end) {
    if (look()) return false;
  }
  return true;
}

void pass_message(RawEnd& from, RawEnd& to) {
  constexpr std::size_t bytes = 5000;
  const auto source = from.buffer(bytes);
  const auto target = to.buffer(bytes);
  source->fill(7);
  ASSERT_EQ(to.post_receive(1, {target->sge(0, bytes)}), 0);
  ASSERT_EQ(from.send(2, {source->sge(0, bytes)}), 0);
  const ibv_wc received = to.await();
  ASSERT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.byte_len, bytes);
  EXPECT_TRUE(target->holds(7, 0, bytes));
  const ibv_wc sent = from.await();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.wr_id, 2U);
}

}  // namespace weft::device
