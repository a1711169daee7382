// Queue pairs connected by their endpoints, without a connection manager.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

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

// The example that rust-ibverbs's users start from: a queue pair connected to itself moves one part
// of a region to another.
TEST(Handshake, loopback) {
  const Context context = open_device();
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
  const Context context = open_device();
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(64);
  auto region = domain.allocate<std::uint8_t>(4096, Access::all);
  std::iota(region.elements().begin(), region.elements().begin() + 64, std::uint8_t{1});
  auto builder = domain.queue_pair(queue, queue);
  builder.access(Access::all).max_send_requests(8).max_receive_requests(8).path_mtu(IBV_MTU_1024);
  auto one = builder.build();
  builder.path_mtu(IBV_MTU_512);
  auto other = builder.build();
  // As programs send them: a line of text one way, bytes the other.
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

TEST(Handshake, shared_receive_queue) {
  const Context context = open_device();
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
  const Context context = open_device();
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
  const Context context = open_device();
  const auto domain = context.create_domain();
  const auto queue = context.create_completion_queue(64);
  const auto region = domain.allocate<char>(8);
  auto prepared = domain.queue_pair(queue, queue).build();
  Endpoint nobody = prepared.endpoint();
  nobody.number ^= 1;  // of our own slot, and nobody's
  const QueuePair queue_pair = std::move(prepared).handshake(nobody);
  ASSERT_EQ(queue_pair.post_send(region.slice(), 7), 0);
  const auto done = await(queue, 1);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status(), IBV_WC_RETRY_EXC_ERR) << done[0].status_name();
}

}  // namespace
}  // namespace weft::verbs
