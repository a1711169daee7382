// Unreliable connections: data that cannot be placed is dropped without notifying the sender.
#include <arpa/inet.h>

#include <cstring>

#include "device/raw_end.h"

namespace weft::device {
namespace {

constexpr EndOptions unreliable_end{.type = IBV_QPT_UC};

class Unreliable : public ::testing::Test {
 protected:
  void SetUp() override {
    a.connect(b);
    b.connect(a);
    source->fill(5);
  }

  ibv_send_wr write_with_immediate(std::uint64_t address, std::uint32_t rkey) {
    ibv_send_wr request{};
    request.wr_id = 40;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.send_flags = IBV_SEND_SIGNALED;
    request.imm_data = htonl(0xCAFE);
    request.wr.rdma = {address, rkey};
    return request;
  }

  // Expects that `end` has received the Send of `bytes` bytes in its receive `wr_id`.
  static void expect_message(RawEnd& end, std::uint64_t wr_id, std::uint32_t bytes) {
    const ibv_wc received = end.await();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.wr_id, wr_id);
    EXPECT_EQ(received.byte_len, bytes);
  }

  static constexpr std::size_t size = 200'000;
  std::unique_ptr<Device> left = make_roce_device();
  std::unique_ptr<Device> right = make_roce_device();
  RawEnd a{*left, unreliable_end};
  RawEnd b{*right, unreliable_end};
  std::unique_ptr<Buffer> source = a.buffer(size);
  std::unique_ptr<Buffer> sink = b.buffer(size);
};

TEST_F(Unreliable, SendsAndWritesArrive) {
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, size)}), 0);
  ASSERT_EQ(a.send(2, {source->sge(0, size)}), 0);
  expect_message(b, 1, size);
  EXPECT_TRUE(sink->holds(5, 0, size));
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);

  std::memset(sink->bytes().data(), 0, size);
  ASSERT_EQ(b.post_receive(3, {}), 0);
  ASSERT_EQ(a.post(write_with_immediate(sink->address(), sink->rkey()), {source->sge(0, size)}), 0);
  const ibv_wc received = b.await();
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.imm_data, htonl(0xCAFE));
  EXPECT_EQ(received.byte_len, size);
  EXPECT_TRUE(sink->holds(5, 0, size));
  EXPECT_EQ(a.await().opcode, IBV_WC_RDMA_WRITE);
}

TEST_F(Unreliable, ASendWithoutAReceiveIsDroppedAndTheNextArrives) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "watching memory that the peer writes is a race to ThreadSanitizer";
#endif
  for (const std::uint32_t bytes : {8U, 0U, static_cast<std::uint32_t>(size)}) {
    ASSERT_EQ(a.send(1, {source->sge(0, bytes)}), 0);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  }
  // Sent after the others, in order: when it has arrived, the others have been dropped.
  ASSERT_EQ(a.write(2, {source->sge(0, 4)}, sink->address(), sink->rkey()), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  while (!sink->holds(5, 0, 4)) b.look();

  ASSERT_EQ(b.post_receive(3, {sink->sge(0, size)}), 0);
  ASSERT_EQ(a.send(4, {source->sge(0, 100)}), 0);
  expect_message(b, 3, 100);
  EXPECT_EQ(a.state(), IBV_QPS_RTS);
}

TEST_F(Unreliable, WhatDoesNotFitIsDroppedAndItsReceiveServesTheNext) {
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, 64)}), 0);
  ASSERT_EQ(a.send(2, {source->sge(0, size)}), 0);
  ASSERT_EQ(a.send(3, {source->sge(0, 64)}), 0);
  expect_message(b, 1, 64);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.state(), IBV_QPS_RTS);
}

TEST_F(Unreliable, AForbiddenWriteTouchesNothingAndTakesItsImmediateAlong) {
  auto locked = b.buffer(size, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, 64)}), 0);
  ASSERT_EQ(a.post(write_with_immediate(locked->address(), locked->rkey()), {source->sge(0, size)}),
            0);
  ASSERT_EQ(a.write(2, {source->sge(0, size)}, sink->address() + 1, sink->rkey()), 0)
      << "one byte beyond the end";
  ASSERT_EQ(a.send(3, {source->sge(0, 64)}), 0);
  expect_message(b, 1, 64);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(locked->bytes()[0], 0);
  EXPECT_EQ(locked->bytes()[size - 1], 0);
  EXPECT_EQ(a.state(), IBV_QPS_RTS);
  EXPECT_EQ(b.state(), IBV_QPS_RTS);
}

TEST_F(Unreliable, NobodyAnswersHere) {
  EXPECT_EQ(a.read(1, {source->sge(0, 8)}, sink->address(), sink->rkey()), EINVAL);
  ibv_send_wr atomic{};
  atomic.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  EXPECT_EQ(a.post(atomic, {source->sge(0, 8)}), EINVAL);
}

TEST(UnreliableLoss, WithoutAPeerWorkIsDoneAllTheSame) {
  const auto device = make_roce_device();
  auto other = make_roce_device();
  RawEnd end(*device, unreliable_end);
  {
    RawEnd gone(*other, unreliable_end);
    end.connect(gone);
    auto source = end.buffer(8);
    ASSERT_EQ(end.send(1, {source->sge(0, 8)}, 0), 0);
    ASSERT_EQ(end.send(2, {source->sge(0, 8)}), 0);
    const ibv_wc late = end.await();  // completes although the peer is not ready
    EXPECT_EQ(late.wr_id, 2U);
    EXPECT_EQ(late.status, IBV_WC_SUCCESS);
    gone.connect(end);
    ASSERT_EQ(gone.post_receive(3, {}), 0);
    ASSERT_EQ(end.send(4, {}), 0);
    EXPECT_EQ(gone.await().status, IBV_WC_SUCCESS);
    EXPECT_EQ(end.await().wr_id, 4U);
  }
  other.reset();
  for (std::uint64_t i = 10; i < 20; ++i) {
    ASSERT_EQ(end.send(i, {}), 0);
    const ibv_wc sent = end.await();
    EXPECT_EQ(sent.wr_id, i);
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(end.state(), IBV_QPS_RTS);
}

TEST(UnreliableLoss, AReliablePeerIsNoPeer) {
  const auto device = make_roce_device();
  RawEnd unreliable(*device, unreliable_end);
  RawEnd reliable(*device);
  unreliable.connect(reliable);
  reliable.connect_briefly(unreliable);
  ASSERT_EQ(reliable.send(1, {}), 0);
  EXPECT_EQ(reliable.await().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(UnreliableLoss, AnIwarpAdapterHasNone) {
  Settings settings;
  settings.personality = Personality::iwarp;
  settings.address = "127.0.0.1";
  auto device = Device::create(settings);
  ASSERT_TRUE(device);
  Context context(**device);
  CompletionQueue queue(context, 1, nullptr, nullptr);
  const std::unique_ptr<ProtectionDomain> domain(context.allocate_domain());
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = queue.verbs();
  for (const auto type : {IBV_QPT_UC, IBV_QPT_UD}) {
    attributes.qp_type = type;
    EXPECT_EQ(QueuePair::create(context, &domain->pd, attributes), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

}  // namespace
}  // namespace weft::device
