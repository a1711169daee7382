// ibv_create_cq_ex(3): the polling calls, the fields, the clock.
#include <gtest/gtest.h>

#include <cerrno>
#include <ctime>

#include "provider/connected_pair.h"

namespace weft::provider::testing {
namespace {

std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

class ExtendedQueue : public ConnectedPair {
 protected:
  void connect_with(std::uint64_t fields, std::uint32_t flags = 0, std::uint32_t entries = 32) {
    attributes_.cqe = entries;
    attributes_.wc_flags = fields;
    attributes_.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attributes_.flags = flags;
    extended_ = &attributes_;
    connect();
  }

  static ibv_cq_ex* of(const End& end) { return reinterpret_cast<ibv_cq_ex*>(end.cq); }

  static int start(const End& end) {
    ibv_poll_cq_attr none{};
    return ibv_start_poll(of(end), &none);
  }

  // Polls until there is a completion. The caller must call end_poll.
  static void await_start(const End& end) {
    int answer = ENOENT;
    while (answer == ENOENT) answer = start(end);
    ASSERT_EQ(answer, 0);
  }

  ibv_cq_init_attr_ex attributes_{};
};

TEST_F(ExtendedQueue, BringsCompletionsOneByOneWithTheirFields) {
  connect_with(IBV_WC_STANDARD_FLAGS);
  EXPECT_EQ(start(passive_), ENOENT);
  ASSERT_EQ(passive_.post_receive(), 0);
  ASSERT_EQ(passive_.post_receive(), 0);
  ASSERT_EQ(active_.post_send(), 0);
  ASSERT_EQ(active_.post_send(), 0);
  await_start(passive_);
  EXPECT_EQ(of(passive_)->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(of(passive_)), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(of(passive_)), 8U);
  EXPECT_EQ(ibv_wc_read_qp_num(of(passive_)), passive_.id->qp->qp_num);
  EXPECT_EQ(ibv_wc_read_vendor_err(of(passive_)), 0U);
  EXPECT_EQ(ibv_wc_read_wc_flags(of(passive_)), 0U);
  EXPECT_EQ(ibv_wc_read_slid(of(passive_)), 0U);
  while (ibv_next_poll(of(passive_)) == ENOENT) {
  }
  EXPECT_EQ(of(passive_)->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_next_poll(of(passive_)), ENOENT);
  ibv_end_poll(of(passive_));
  EXPECT_EQ(start(passive_), ENOENT);  // and the queue is unlocked again
}

TEST_F(ExtendedQueue, StampsTheMomentOfCompletionOnBothClocks) {
  connect_with(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
  ibv_values_ex before{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK, .raw_clock = {}};
  ASSERT_EQ(ibv_query_rt_values_ex(active_.id->verbs, &before), 0);
  const std::uint64_t wallclock_before = clock_ns(CLOCK_REALTIME);
  ASSERT_EQ(passive_.post_receive(), 0);
  ASSERT_EQ(active_.post_send(), 0);
  await_start(passive_);
  EXPECT_GE(ibv_wc_read_completion_ts(of(passive_)),
            static_cast<std::uint64_t>(before.raw_clock.tv_nsec));
  EXPECT_LE(ibv_wc_read_completion_ts(of(passive_)), clock_ns(CLOCK_MONOTONIC));
  EXPECT_GE(ibv_wc_read_completion_wallclock_ns(of(passive_)), wallclock_before);
  ibv_end_poll(of(passive_));
}

TEST_F(ExtendedQueue, StampsSurviveAResize) {
  connect_with(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_CREATE_CQ_ATTR_SINGLE_THREADED, 4);
  const std::uint64_t before = clock_ns(CLOCK_MONOTONIC);
  ASSERT_EQ(passive_.post_receive(), 0);
  ASSERT_EQ(passive_.post_receive(), 0);
  ASSERT_EQ(active_.post_send(), 0);
  ASSERT_EQ(active_.post_send(), 0);
  await_start(passive_);
  const std::uint64_t first = ibv_wc_read_completion_ts(of(passive_));
  ibv_end_poll(of(passive_));
  ASSERT_EQ(table_.resize_cq(passive_.cq, 16), 0);
  await_start(passive_);
  EXPECT_GE(first, before);
  EXPECT_GE(ibv_wc_read_completion_ts(of(passive_)), first);
  ibv_end_poll(of(passive_));
}

TEST_F(ExtendedQueue, PlainPollingSeesTheSameCompletions) {
  connect_with(IBV_WC_EX_WITH_BYTE_LEN);
  ASSERT_EQ(passive_.post_receive(), 0);
  ASSERT_EQ(active_.post_send(), 0);
  EXPECT_EQ(passive_.await_completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(start(passive_), ENOENT);
}

TEST_F(ExtendedQueue, RefusesWhatItCannotDo) {
  connect();
  const auto error_of = [this](ibv_cq_init_attr_ex attributes) {
    return ibv_create_cq_ex(active_.id->verbs, &attributes) ? 0 : errno;
  };
  ibv_cq_init_attr_ex wanted{};
  EXPECT_EQ(error_of(wanted), EINVAL);  // no entries
  wanted.cqe = 4;
  wanted.wc_flags = IBV_WC_EX_WITH_CVLAN;
  EXPECT_EQ(error_of(wanted), EOPNOTSUPP);
  wanted.wc_flags = 0;
  wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  wanted.parent_domain = active_.pd;  // an ordinary domain
  EXPECT_EQ(error_of(wanted), EINVAL);
  wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  wanted.flags = 1U << 7;
  EXPECT_EQ(error_of(wanted), EOPNOTSUPP);
  wanted.flags = 0;
  wanted.comp_vector = 1U << 20;
  EXPECT_EQ(error_of(wanted), EINVAL);
}

}  // namespace
}  // namespace weft::provider::testing
