// Queue pairs connected by their endpoints, without a connection manager.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "support/device.h"
#include "support/needs.h"
#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

constexpr std::chrono::seconds patience{30};

std::vector<Completion> await(const CompletionQueue& queue, std::size_t count) {
  std::vector<Completion> all(count);
  std::size_t got = 0;
  while (got < count) {
    const auto some = queue.wait(std::span(all).subspan(got), patience);
    if (some.empty()) break;
    got += some.size();
  }
  all.resize(got);
  return all;
}

// The first example of rust-ibverbs: a queue pair connected to itself copies one part of a region
// to another.
TEST(Handshake, loopback) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(16);
  auto region = domain.allocate<std::uint8_t>(16);
  auto prepared = domain.queue_pair(queue, queue).build();
  const Endpoint endpoint = prepared.endpoint();
  const QueuePair queue_pair = std::move(prepared).handshake(endpoint);

  region[9] = 0x42;
  ASSERT_EQ(queue_pair.post_receive(region.slice(0, 8), 2), 0);
  ASSERT_EQ(queue_pair.post_send(region.slice(8, 8), 1), 0);
  auto done = await(queue, 2);
  ASSERT_EQ(done.size(), 2U);
  std::ranges::sort(done, {}, &Completion::id);
  for (std::size_t i = 0; i < done.size(); ++i) {
    EXPECT_EQ(done[i].id(), i + 1);
    EXPECT_TRUE(done[i].ok()) << done[i].status_name();
  }
  EXPECT_EQ(region[1], 0x42);
}

TEST(Handshake, TwoQueuePairsBySentEndpoints) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(64);
  auto region = domain.allocate<std::uint8_t>(4096, Access::all);
  std::iota(region.elements().begin(), region.elements().begin() + 64, std::uint8_t{1});
  auto builder = domain.queue_pair(queue, queue);
  builder.access(Access::all).max_send_requests(8).max_receive_requests(8).path_mtu(IBV_MTU_1024);
  auto one = builder.build();
  builder.path_mtu(IBV_MTU_512);
  auto other = builder.build();
  // As programs exchange endpoints: a line of text in one direction, bytes in the other.
  const auto of_one = Endpoint::parse(one.endpoint().to_string());
  const auto of_other = Endpoint::from_bytes(other.endpoint().to_bytes());
  ASSERT_TRUE(of_one && of_other);
  const QueuePair a = std::move(one).handshake(*of_other);
  const QueuePair b = std::move(other).handshake(*of_one);

  const auto of_a = a.query(IBV_QP_PATH_MTU | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN | IBV_QP_DEST_QPN);
  EXPECT_EQ(of_a.current.path_mtu, IBV_MTU_512);
  EXPECT_EQ(of_a.current.dest_qp_num, b.number());
  EXPECT_EQ(of_a.current.sq_psn, of_one->psn);
  EXPECT_EQ(of_a.current.rq_psn, of_other->psn);

  ASSERT_EQ(a.post_write(region.slice(0, 64), region.remote().slice(1024, 64), 1), 0);
  ASSERT_EQ(b.post_read(region.slice(2048, 64), region.remote().slice(0, 64), 2), 0);
  for (const Completion& completion : await(queue, 2)) {
    EXPECT_TRUE(completion.ok()) << completion.status_name();
  }
  EXPECT_TRUE(std::ranges::equal(region.elements().first(64), region.elements().subspan(1024, 64)));
  EXPECT_TRUE(std::ranges::equal(region.elements().first(64), region.elements().subspan(2048, 64)));
}

TEST(QueuePairBuilder, EverySettingReachesTheQueuePair) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(64);
  int mark = 0;
  auto prepared = domain.queue_pair(queue, queue)
                      .max_send_requests(11)
                      .max_receive_requests(12)
                      .max_send_slices(3)
                      .max_receive_slices(2)
                      .max_inline_bytes(48)
                      .access(Access::remote_read)
                      .service_level(5)
                      .gid_index(0)
                      .traffic_class(0x20)
                      .min_rnr_timer(9)
                      .timeout(17)
                      .retry_count(3)
                      .rnr_retry(2)
                      .max_rd_atomic(4)
                      .max_dest_rd_atomic(6)
                      .path_mtu(IBV_MTU_2048)
                      .send_psn(0x123456)
                      .receive_psn(0x123456)
                      .user_context(&mark)
                      .signal_all()
                      .build();
  const Endpoint endpoint = prepared.endpoint();
  EXPECT_EQ(endpoint.psn, 0x123456U);
  EXPECT_EQ(endpoint.mtu, IBV_MTU_2048);
  const QueuePair queue_pair = std::move(prepared).handshake(endpoint);

  const auto [current, initial] = queue_pair.query(
      IBV_QP_CAP | IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER |
      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN);
  EXPECT_GE(initial.cap.max_send_wr, 11U);
  EXPECT_GE(initial.cap.max_recv_wr, 12U);
  EXPECT_GE(initial.cap.max_send_sge, 3U);
  EXPECT_GE(initial.cap.max_recv_sge, 2U);
  EXPECT_GE(initial.cap.max_inline_data, 48U);
  EXPECT_EQ(current.qp_access_flags, static_cast<unsigned>(Access::remote_read));
  EXPECT_EQ(current.ah_attr.grh.sgid_index, 0);
  EXPECT_EQ(current.ah_attr.grh.traffic_class, 0x20);
  EXPECT_EQ(current.min_rnr_timer, 9);
  EXPECT_EQ(current.timeout, 17);
  EXPECT_EQ(current.retry_cnt, 3);
  EXPECT_EQ(current.rnr_retry, 2);
  EXPECT_GE(current.max_rd_atomic, 4);
  EXPECT_GE(current.max_dest_rd_atomic, 6);
  // Others may round depths up, and ignore the service level on Ethernet.
  if (test::own_device()) {
    EXPECT_EQ(current.ah_attr.sl, 5);
    EXPECT_EQ(current.max_rd_atomic, 4);
    EXPECT_EQ(current.max_dest_rd_atomic, 6);
  }
  EXPECT_EQ(current.path_mtu, IBV_MTU_2048);
  EXPECT_EQ(current.sq_psn, 0x123456U);
  EXPECT_EQ(current.rq_psn, 0x123456U);
  EXPECT_EQ(queue_pair.raw()->qp_context, &mark);
  EXPECT_EQ(initial.sq_sig_all, 1);
  // signal_all: a request without SendFlags::signaled also completes.
  const auto region = domain.allocate<char>(8);
  ASSERT_EQ(queue_pair.post_receive(region.slice(), 1), 0);
  ASSERT_EQ(queue_pair.post_send(region.slice(), 2, SendFlags::none), 0);
  EXPECT_EQ(await(queue, 2).size(), 2U);
}

TEST(Handshake, shared_receive_queue) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(64);
  const auto shared = domain.create_shared_receive_queue({.receives = 8});
  auto region = domain.allocate<std::uint8_t>(64);
  auto builder = domain.queue_pair(queue, queue);
  builder.shared_receive_queue(shared).max_send_requests(4);
  auto prepared = builder.build();
  const Endpoint endpoint = prepared.endpoint();
  const QueuePair queue_pair = std::move(prepared).handshake(endpoint);
  ASSERT_EQ(shared.post_receive(region.slice(0, 8), 1), 0);
  ASSERT_EQ(queue_pair.post_send(region.slice(8, 8), 2), 0);
  EXPECT_EQ(await(queue, 2).size(), 2U);
}

TEST(Handshake, manual_bringup_via_modify) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(64);
  const auto queue_pair = domain.queue_pair(queue, queue).build().release();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  queue_pair.modify(attributes,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(queue_pair.state(), IBV_QPS_INIT);
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = queue_pair.number();
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr = to_attributes({.gid = context.query_gid(1, 0)});
  queue_pair.modify(attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                    IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(queue_pair.state(), IBV_QPS_RTR);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.max_rd_atomic = 1;
  queue_pair.modify(attributes, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  EXPECT_EQ(queue_pair.state(), IBV_QPS_RTS);
}

TEST(Handshake, APeerThatIsNotThereEndsInRetryExceeded) {
  const Context context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(64);
  const auto region = domain.allocate<char>(8);
  auto prepared = domain.queue_pair(queue, queue).build();
  Endpoint nobody = prepared.endpoint();
  nobody.number ^= 1;  // a number in this process's slot that no queue pair has
  const QueuePair queue_pair = std::move(prepared).handshake(nobody);
  ASSERT_EQ(queue_pair.post_send(region.slice(), 7), 0);
  const auto done = await(queue, 1);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status(), IBV_WC_RETRY_EXC_ERR) << done[0].status_name();
}

}  // namespace
}  // namespace weft::verbs
