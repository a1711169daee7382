// ibv_create_qp_ex(3) and ibv_wr_post(3).
#include <cerrno>
#include <cstring>
#include <thread>

#include "conformance/pair.h"

namespace conformance {
namespace {

constexpr std::uint64_t everything =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

class Batches : public Pair {
 protected:
  void TearDown() override {
    local_.reset();
    remote_.reset();
    Pair::TearDown();
  }

  void prepare(std::uint64_t operations = everything) {
    connected_ = connect(operations);
    if (!connected_) return;
    local_ = std::make_unique<Buffer>(pd_, 4096);
    remote_ = std::make_unique<Buffer>(pd_, 4096);
  }

  // Starts the next request: sets its id and asks for a completion.
  ibv_qp_ex* next(std::uint64_t id) {
    ibv_qp_ex* batch = a_.batch();
    batch->wr_id = id;
    batch->wr_flags = IBV_SEND_SIGNALED;
    return batch;
  }

  void set(const ibv_sge& slice) {
    ibv_wr_set_sge(a_.batch(), slice.lkey, slice.addr, slice.length);
  }

  bool connected_ = false;
  std::unique_ptr<Buffer> local_;
  std::unique_ptr<Buffer> remote_;
};

TEST_F(Batches, CarryEveryOperationInOrder) {
  prepare();
  NEEDS(connected_);
  local_->bytes.assign(4096, 3);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(b_.post_receive({remote_->slice(static_cast<std::size_t>(i) * 64, 64)}), 0);
  }
  ibv_wr_start(a_.batch());
  ibv_wr_send(next(1));
  set(local_->slice(0, 8));
  ibv_wr_send_imm(next(2), 0x11223344);
  set(local_->slice(0, 16));
  ibv_wr_rdma_write(next(3), remote_->mr->rkey, remote_->address() + 1024);
  const ibv_sge parts[] = {local_->slice(0, 100), local_->slice(200, 28)};
  ibv_wr_set_sge_list(a_.batch(), 2, parts);
  ibv_wr_rdma_write_imm(next(4), remote_->mr->rkey, remote_->address() + 2048, 0x55667788);
  set(local_->slice(0, 32));
  ibv_wr_rdma_read(next(5), remote_->mr->rkey, remote_->address() + 1024);
  set(local_->slice(3000, 128));
  ibv_wr_atomic_fetch_add(next(6), remote_->mr->rkey, remote_->address() + 3072, 5);
  set(local_->slice(3200, 8));
  ibv_wr_atomic_cmp_swp(next(7), remote_->mr->rkey, remote_->address() + 3072, 5, 9);
  set(local_->slice(3208, 8));
  EXPECT_TRUE(a_.quiet());  // nothing is posted before ibv_wr_complete()
  ASSERT_EQ(ibv_wr_complete(a_.batch()), 0);
  const ibv_wc_opcode opcodes[] = {IBV_WC_SEND,       IBV_WC_SEND,      IBV_WC_RDMA_WRITE,
                                   IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD,
                                   IBV_WC_COMP_SWAP};
  std::uint64_t id = 0;
  for (const ibv_wc_opcode opcode : opcodes) {
    const ibv_wc done = a_.await();
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.wr_id, ++id);
    EXPECT_EQ(done.opcode, opcode);
  }
  EXPECT_EQ(b_.await().byte_len, 8U);
  EXPECT_EQ(b_.await().imm_data, 0x11223344U);
  EXPECT_EQ(b_.await().imm_data, 0x55667788U);
  EXPECT_EQ(local_->bytes[3127], 3);
  std::uint64_t value = 0;
  std::memcpy(&value, remote_->bytes.data() + 3072, 8);
  EXPECT_EQ(value, 9U);
  std::memcpy(&value, local_->bytes.data() + 3208, 8);
  EXPECT_EQ(value, 5U);
}

TEST_F(Batches, TakeInlineDataAtOnce) {
  prepare();
  NEEDS(connected_);
  std::uint8_t first[20];
  std::uint8_t second[10];
  std::memset(first, 1, sizeof first);
  std::memset(second, 2, sizeof second);
  ibv_wr_start(a_.batch());
  ibv_wr_rdma_write(next(1), remote_->mr->rkey, remote_->address());
  ibv_wr_set_inline_data(a_.batch(), first, sizeof first);
  ibv_wr_rdma_write(next(2), remote_->mr->rkey, remote_->address() + 100);
  const ibv_data_buf pieces[] = {{first, sizeof first}, {second, sizeof second}};
  ibv_wr_set_inline_data_list(a_.batch(), 2, pieces);
  std::memset(first, 9, sizeof first);
  std::memset(second, 9, sizeof second);
  ASSERT_EQ(ibv_wr_complete(a_.batch()), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(a_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(remote_->bytes[0], 1);
  EXPECT_EQ(remote_->bytes[19], 1);
  EXPECT_EQ(remote_->bytes[20], 0);
  EXPECT_EQ(remote_->bytes[119], 1);
  EXPECT_EQ(remote_->bytes[129], 2);
}

TEST_F(Batches, WriteEightBytesAtOnceWithTheRightToWrite) {
  prepare(IBV_QP_EX_WITH_ATOMIC_WRITE);
  NEEDS(connected_);
  Buffer target(pd_, 16, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  std::uint64_t value = 0x0102030405060708;
  ibv_wr_start(a_.batch());
  ibv_wr_atomic_write(next(1), target.mr->rkey, target.address() + 8, &value);
  value = 0;  // taken by then
  ASSERT_EQ(ibv_wr_complete(a_.batch()), 0);
  const ibv_wc done = a_.await();
  EXPECT_EQ(done.status, IBV_WC_SUCCESS);
  EXPECT_EQ(done.opcode, IBV_WC_ATOMIC_WRITE);
  std::memcpy(&value, target.bytes.data() + 8, 8);
  EXPECT_EQ(value, 0x0102030405060708U);
}

TEST_F(Batches, DoNotWriteAtOnceAcrossWords) {
  prepare(IBV_QP_EX_WITH_ATOMIC_WRITE);
  NEEDS(connected_);
  const std::uint64_t value = 1;
  ibv_wr_start(a_.batch());
  ibv_wr_atomic_write(next(1), remote_->mr->rkey, remote_->address() + 4, &value);
  ASSERT_EQ(ibv_wr_complete(a_.batch()), 0);
  EXPECT_EQ(a_.await().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Batches, PostNothingWhenAborted) {
  prepare();
  NEEDS(connected_);
  ibv_wr_start(a_.batch());
  ibv_wr_rdma_write(next(1), remote_->mr->rkey, remote_->address());
  set(local_->slice(0, 8));
  ibv_wr_abort(a_.batch());
  ibv_wr_start(a_.batch());
  ibv_wr_rdma_write(next(2), remote_->mr->rkey, remote_->address());
  set(local_->slice(0, 8));
  ASSERT_EQ(ibv_wr_complete(a_.batch()), 0);
  EXPECT_EQ(a_.await().wr_id, 2U);
  EXPECT_TRUE(a_.quiet());
}

TEST_F(Batches, PostNothingWhenOneIsWrong) {
  prepare();
  NEEDS(connected_);
  std::uint8_t large[4096] = {};
  ibv_wr_start(a_.batch());
  ibv_wr_rdma_write(next(1), remote_->mr->rkey, remote_->address());
  set(local_->slice(0, 8));
  ibv_wr_rdma_write(next(2), remote_->mr->rkey, remote_->address());
  ibv_wr_set_inline_data(a_.batch(), large, sizeof large);
  EXPECT_NE(ibv_wr_complete(a_.batch()), 0);
  ibv_wr_start(a_.batch());
  ibv_wr_rdma_write(next(3), remote_->mr->rkey, remote_->address());
  set(local_->slice(0, 8));
  ASSERT_EQ(ibv_wr_complete(a_.batch()), 0);
  EXPECT_EQ(a_.await().wr_id, 3U);
  EXPECT_TRUE(a_.quiet());
}

TEST_F(Batches, LargerThanTheQueueAreRefusedWhole) {
  prepare();
  NEEDS(connected_);
  ibv_wr_start(a_.batch());
  for (std::uint64_t i = 0; i < 400; ++i) {
    ibv_wr_rdma_write(next(i), remote_->mr->rkey, remote_->address());
    set(local_->slice(0, 8));
  }
  EXPECT_EQ(ibv_wr_complete(a_.batch()), ENOMEM);
  EXPECT_TRUE(a_.quiet());
}

TEST_F(Batches, OfTwoThreadsDoNotMix) {
  prepare();
  NEEDS(connected_);
  const auto post = [this](std::uint64_t from) {
    for (std::uint64_t i = 0; i < 4; i += 2) {
      ibv_wr_start(a_.batch());
      for (std::uint64_t id = from + i; id < from + i + 2; ++id) {
        ibv_wr_rdma_write(next(id), remote_->mr->rkey, remote_->address() + id * 8);
        set(local_->slice(0, 8));
      }
      EXPECT_EQ(ibv_wr_complete(a_.batch()), 0);
    }
  };
  std::thread other([&] { post(100); });
  post(0);
  other.join();
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t first = a_.await().wr_id;
    EXPECT_EQ(first % 2, 0U);
    EXPECT_EQ(a_.await().wr_id, first + 1);
  }
}

TEST_F(Batches, AreOnlyForQueuePairsThatAskedForThem) {
  ASSERT_TRUE(connect());
  EXPECT_EQ(ibv_qp_to_qp_ex(a_.qp), nullptr);
}

}  // namespace
}  // namespace conformance
