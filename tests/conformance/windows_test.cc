// ibv_alloc_mw(3), ibv_bind_mw(3), IBV_WR_BIND_MW and IBV_WR_LOCAL_INV of ibv_post_send(3).
#include <cerrno>
#include <cstring>
#include <utility>

#include "conformance/pair.h"

namespace conformance {
namespace {

class Windows : public Pair {
 protected:
  void TearDown() override {
    if (window_) {
      EXPECT_EQ(ibv_dealloc_mw(window_), 0);
    }
    source_.reset();
    target_.reset();
    Pair::TearDown();
  }

  void prepare(ibv_mw_type type) {
    ASSERT_TRUE(connect()) << strerror(errno);
    source_ = std::make_unique<Buffer>(pd_, 64);
    target_ = std::make_unique<Buffer>(pd_, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    source_->bytes.assign(64, 7);
    window_ = ibv_alloc_mw(pd_, type);
  }

  // Binds a type 2 window to bytes 16 to 31 of the target, on queue pair b.
  ibv_wc bind(std::uint32_t rkey, unsigned access = IBV_ACCESS_REMOTE_WRITE) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw = {window_, rkey, {target_->mr, target_->address() + 16, 16, access}};
    EXPECT_EQ(b_.post(request, {}), 0);
    return b_.await();
  }

  int bind_first(std::uint64_t length, unsigned access) {
    ibv_mw_bind wanted{};
    wanted.send_flags = IBV_SEND_SIGNALED;
    wanted.bind_info = {target_->mr, target_->address() + 16, length, access};
    return ibv_bind_mw(b_.qp, window_, &wanted);
  }

  ibv_wc_status write(std::size_t offset, std::uint32_t length, std::uint32_t rkey) {
    EXPECT_EQ(a_.post(write_to(target_->address() + offset, rkey), {source_->slice(0, length)}), 0);
    return a_.await().status;
  }

  // The completions of a Send with Invalidate from one end to the other, and of its receive.
  std::pair<ibv_wc, ibv_wc> invalidate(End& from, End& to, std::uint32_t rkey) {
    Buffer landing(pd_, 8);
    EXPECT_EQ(to.post_receive({landing.slice(0, 8)}), 0);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND_WITH_INV;
    send.invalidate_rkey = rkey;
    EXPECT_EQ(from.post(send, {source_->slice(0, 8)}), 0);
    const ibv_wc sent = from.await();
    return {sent, to.await()};
  }

  // It is refused as for a region (RFC 5040 §5.3, RFC 5042 §6.4.5). Other devices may say so with
  // other statuses.
  void expect_invalidate_refused(End& from, End& to, std::uint32_t rkey) {
    const auto [sent, received] = invalidate(from, to, rkey);
    if (embedded()) {
      EXPECT_EQ(sent.status, IBV_WC_REM_ACCESS_ERR);
      EXPECT_EQ(received.status, IBV_WC_LOC_QP_OP_ERR);
    } else {
      EXPECT_NE(sent.status, IBV_WC_SUCCESS);
      EXPECT_NE(received.status, IBV_WC_SUCCESS);
    }
  }

  std::unique_ptr<Buffer> source_;
  std::unique_ptr<Buffer> target_;
  ibv_mw* window_ = nullptr;
};

TEST_F(Windows, OfTypeOneGrantAPartOfARegion) {
  prepare(IBV_MW_TYPE_1);
  NEEDS(window_);
  const std::uint32_t before = window_->rkey;
  ASSERT_EQ(bind_first(16, IBV_ACCESS_REMOTE_WRITE), 0);
  const ibv_wc bound = b_.await();
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
  EXPECT_NE(window_->rkey, before);
  EXPECT_EQ(write(16, 16, window_->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(target_->bytes[15], 0);
  EXPECT_EQ(target_->bytes[16], 7);
  EXPECT_EQ(target_->bytes[31], 7);
  EXPECT_EQ(write(17, 16, window_->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(target_->bytes[32], 0);
}

TEST_F(Windows, OfTypeOneAreUnboundByABindOfNoLength) {
  prepare(IBV_MW_TYPE_1);
  NEEDS(window_);
  ASSERT_EQ(bind_first(16, IBV_ACCESS_REMOTE_WRITE), 0);
  EXPECT_EQ(b_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(target_->mr), EBUSY);
  ASSERT_EQ(bind_first(0, 0), 0);
  EXPECT_EQ(b_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(16, 1, window_->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, OfTypeOneLoseTheirOldKeyWhenBoundAgain) {
  prepare(IBV_MW_TYPE_1);
  NEEDS(window_);
  ASSERT_EQ(bind_first(16, IBV_ACCESS_REMOTE_WRITE), 0);
  EXPECT_EQ(b_.await().status, IBV_WC_SUCCESS);
  const std::uint32_t old = window_->rkey;
  ASSERT_EQ(bind_first(8, IBV_ACCESS_REMOTE_WRITE), 0);
  EXPECT_EQ(b_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(16, 8, window_->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(write(16, 8, old), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, GrantOnlyWhatTheBindSays) {
  prepare(IBV_MW_TYPE_2);
  NEEDS(window_);
  const std::uint32_t rkey = ibv_inc_rkey(window_->rkey);
  EXPECT_EQ(bind(rkey, IBV_ACCESS_REMOTE_READ).status, IBV_WC_SUCCESS);
  EXPECT_EQ(write(16, 16, rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(target_->bytes[16], 0);
}

TEST_F(Windows, OfTypeTwoAreInvalidatedBySelf) {
  prepare(IBV_MW_TYPE_2);
  NEEDS(window_);
  const std::uint32_t rkey = ibv_inc_rkey(window_->rkey);
  const ibv_wc bound = bind(rkey);
  EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
  EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(write(16, 16, rkey), IBV_WC_SUCCESS);
  ibv_send_wr invalidate{};
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.invalidate_rkey = rkey;
  ASSERT_EQ(b_.post(invalidate, {}), 0);
  const ibv_wc done = b_.await();
  EXPECT_EQ(done.status, IBV_WC_SUCCESS);
  EXPECT_EQ(done.opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(write(16, 16, rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, OfTypeTwoAreInvalidatedByThePeer) {
  prepare(IBV_MW_TYPE_2);
  NEEDS(window_);
  const std::uint32_t rkey = ibv_inc_rkey(window_->rkey);
  EXPECT_EQ(bind(rkey).status, IBV_WC_SUCCESS);
  const auto [sent, received] = invalidate(a_, b_, rkey);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(received.wc_flags & IBV_WC_WITH_INV);
  EXPECT_EQ(received.invalidated_rkey, rkey);
  EXPECT_EQ(write(16, 16, rkey), IBV_WC_REM_ACCESS_ERR);
}

// A peer of another queue pair of the domain must not withdraw what this one has been granted.
TEST_F(Windows, OfTypeTwoAreNotInvalidatedThroughAnotherQueuePair) {
  prepare(IBV_MW_TYPE_2);
  NEEDS(window_);
  const std::uint32_t rkey = ibv_inc_rkey(window_->rkey);
  EXPECT_EQ(bind(rkey).status, IBV_WC_SUCCESS);
  End other_a{.cq = a_.cq};
  End other_b{.cq = b_.cq};
  ASSERT_TRUE(connect(other_a, other_b, 0, IBV_QPT_RC));
  expect_invalidate_refused(other_a, other_b, rkey);
  EXPECT_EQ(write(16, 16, rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(target_->bytes[16], 7);
}

TEST_F(Windows, OfTypeTwoAreNotInvalidatedBeforeTheyAreBound) {
  prepare(IBV_MW_TYPE_2);
  NEEDS(window_);
  expect_invalidate_refused(a_, b_, window_->rkey);
}

TEST_F(Windows, OfTypeTwoAreInvalidatedOnce) {
  prepare(IBV_MW_TYPE_2);
  NEEDS(window_);
  const std::uint32_t rkey = ibv_inc_rkey(window_->rkey);
  EXPECT_EQ(bind(rkey).status, IBV_WC_SUCCESS);
  const auto [sent, received] = invalidate(a_, b_, rkey);
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  expect_invalidate_refused(a_, b_, rkey);
}

// They serve all queue pairs of the domain, as a region does.
TEST_F(Windows, OfTypeOneAreNotInvalidatedByAPeer) {
  prepare(IBV_MW_TYPE_1);
  NEEDS(window_);
  ASSERT_EQ(bind_first(16, IBV_ACCESS_REMOTE_WRITE), 0);
  EXPECT_EQ(b_.await().status, IBV_WC_SUCCESS);
  End other_a{.cq = a_.cq};
  End other_b{.cq = b_.cq};
  ASSERT_TRUE(connect(other_a, other_b, 0, IBV_QPT_RC));
  expect_invalidate_refused(other_a, other_b, window_->rkey);
  EXPECT_EQ(write(16, 16, window_->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(target_->bytes[16], 7);
}

TEST_F(Windows, OfTypeTwoBelongToTheQueuePairThatBoundThem) {
  prepare(IBV_MW_TYPE_2);
  NEEDS(window_);
  const std::uint32_t rkey = ibv_inc_rkey(window_->rkey);
  EXPECT_EQ(bind(rkey).status, IBV_WC_SUCCESS);
  End other_a{.cq = a_.cq};
  End other_b{.cq = b_.cq};
  ASSERT_TRUE(connect(other_a, other_b, 0, IBV_QPT_RC));
  ASSERT_EQ(other_a.post(write_to(target_->address() + 16, rkey), {source_->slice(0, 16)}), 0);
  EXPECT_EQ(other_a.await().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(target_->bytes[16], 0);
}

TEST_F(Windows, AreNotBoundToRegionsThatForbidIt) {
  prepare(IBV_MW_TYPE_2);
  NEEDS(window_);
  Buffer closed(pd_, 64, IBV_ACCESS_LOCAL_WRITE);
  ibv_send_wr request{};
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw = {window_,
                     ibv_inc_rkey(window_->rkey),
                     {closed.mr, closed.address(), 16, IBV_ACCESS_REMOTE_READ}};
  // The device may report the error when the request is posted or when it is executed.
  if (b_.post(request, {}) == 0) {
    EXPECT_EQ(b_.await().status, IBV_WC_MW_BIND_ERR);
  }
}

TEST_F(Windows, AreNotBoundBeyondTheirRegion) {
  prepare(IBV_MW_TYPE_2);
  NEEDS(window_);
  ibv_send_wr request{};
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw = {window_,
                     ibv_inc_rkey(window_->rkey),
                     {target_->mr, target_->address() + 60, 5, IBV_ACCESS_REMOTE_READ}};
  if (b_.post(request, {}) == 0) {
    EXPECT_EQ(b_.await().status, IBV_WC_MW_BIND_ERR);
  }
}

}  // namespace
}  // namespace conformance
