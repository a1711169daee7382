// Queues and states: ibv_post_send(3), ibv_modify_qp(3), ibv_query_qp(3).
#include <cerrno>
#include <cstring>

#include "conformance/pair.h"

namespace conformance {
namespace {

class Queues : public Pair {};

TEST_F(Queues, OnlyPollingMakesRoom) {
  ASSERT_TRUE(connect());
  Buffer local(pd_, 8);
  Buffer remote(pd_, 8);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  ASSERT_EQ(ibv_query_qp(a_.qp, &attributes, IBV_QP_CAP, &initial), 0);
  const auto write = [&] {
    return a_.post(write_to(remote.address(), remote.mr->rkey), {local.slice(0, 8)});
  };
  for (std::uint32_t i = 0; i < attributes.cap.max_send_wr; ++i) ASSERT_EQ(write(), 0);
  EXPECT_EQ(write(), ENOMEM);
  EXPECT_EQ(a_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(), 0);
  for (std::uint32_t i = 0; i < attributes.cap.max_send_wr; ++i) {
    EXPECT_EQ(a_.await().status, IBV_WC_SUCCESS);
  }
}

TEST_F(Queues, ComeBackFromErrorByReset) {
  ASSERT_TRUE(connect());
  Buffer local(pd_, 8);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &attributes, IBV_QP_STATE), 0);
  ASSERT_EQ(a_.post_receive({local.slice(0, 8)}), 0);
  EXPECT_EQ(a_.await().status, IBV_WC_WR_FLUSH_ERR);
  attributes.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &attributes, IBV_QP_STATE), 0);
  EXPECT_NE(a_.post_receive({local.slice(0, 8)}), 0);  // ibv_post_recv(3): not in RESET
}

TEST_F(Queues, DoNotSkipStates) {
  ASSERT_TRUE(connect());
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  EXPECT_NE(ibv_modify_qp(a_.qp, &attributes,
                          IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
            0);
}

TEST_F(Queues, CountWhatIsAtomicOnce) {
  ASSERT_TRUE(connect());
  Buffer local(pd_, 8);
  Buffer remote(pd_, 8);
  ibv_send_wr add{};
  add.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  add.wr.atomic = {remote.address(), 3, 0, remote.mr->rkey};
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(a_.post(add, {local.slice(0, 8)}), 0);
    EXPECT_EQ(a_.await().status, IBV_WC_SUCCESS);
    std::uint64_t before = 0;
    std::memcpy(&before, local.bytes.data(), 8);
    EXPECT_EQ(before, 3 * i);
  }
}

TEST_F(Queues, TellOfSeveralCompletionsAtOnce) {
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &attributes), 0);
  NEEDS(attributes.cq_mod_caps.max_cq_count > 1);
  ibv_modify_cq_attr moderation{IBV_CQ_ATTR_MODERATE, {4, 1000}};
  ASSERT_TRUE(connect());
  EXPECT_EQ(ibv_modify_cq(a_.cq, &moderation), 0);
  moderation.attr_mask = ~0U;
  EXPECT_NE(ibv_modify_cq(a_.cq, &moderation), 0);
}

TEST_F(Queues, OfUnreliableConnectionsAnswerNothing) {
  const bool connected = connect(0, IBV_QPT_UC);
  NEEDS(connected);
  Buffer local(pd_, 8);
  Buffer remote(pd_, 8);
  local.bytes.assign(8, 4);
  ASSERT_EQ(b_.post_receive({remote.slice(0, 8)}), 0);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  ASSERT_EQ(a_.post(send, {local.slice(0, 8)}), 0);
  EXPECT_EQ(a_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(remote.bytes, local.bytes);
  ibv_send_wr read{};
  read.opcode = IBV_WR_RDMA_READ;
  read.wr.rdma = {remote.address(), remote.mr->rkey};
  EXPECT_NE(a_.post(read, {local.slice(0, 8)}), 0);
}

}  // namespace
}  // namespace conformance
