// A program that polls a completion queue of many queue pairs whose peers are on the same host.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "device/local/same_host_test.h"
#include "device/pair_fixture.h"

namespace weft::device {
namespace {

class PolledCrowd : public SameHostTest {};

// One more queue pair at this end, on its completion queue.
std::shared_ptr<QueuePair> one_more(End& end) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = end.queue.verbs();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {.max_send_wr = 16,
                    .max_recv_wr = 16,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};
  return QueuePair::create(end.context, &end.domain->pd, attributes);
}

// A program that polls is not woken, so it must look at each of them.
TEST_F(PolledCrowd, SeesWhatComesToEachQueuePair) {
  constexpr std::size_t queue_pairs = 80;  // more than one poll looks at
  Pair pair;
  std::vector<std::shared_ptr<QueuePair>> senders;
  std::vector<std::shared_ptr<QueuePair>> receivers;
  for (std::size_t i = 0; i < queue_pairs; ++i) {
    senders.push_back(one_more(pair.a));
    receivers.push_back(one_more(pair.b));
    Pair::connect(*senders.back(), *receivers.back(), {});
  }
  const auto from = pair.a.buffer(8);
  const auto to = pair.b.buffer(8 * queue_pairs);
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < queue_pairs; ++i) {
      std::swap(pair.a.queue_pair, senders[i]);
      std::swap(pair.b.queue_pair, receivers[i]);
      EXPECT_EQ(pair.b.post_receive(round, {to->sge(8 * i, 8)}), 0);
      EXPECT_EQ(pair.a.send(round, {from->sge(0, 8)}), 0);
      std::swap(pair.a.queue_pair, senders[i]);
      std::swap(pair.b.queue_pair, receivers[i]);
    }
    for (std::size_t i = 0; i < queue_pairs; ++i) {
      ASSERT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
      const ibv_wc received = pair.b.await();
      ASSERT_EQ(received.status, IBV_WC_SUCCESS) << "round " << round << ", after " << i;
      ASSERT_EQ(received.wr_id, round);
    }
  }
  for (auto* group : {&senders, &receivers}) {
    for (const auto& queue_pair : *group) queue_pair->destroy();
  }
}

}  // namespace
}  // namespace weft::device
