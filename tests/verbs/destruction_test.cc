// Destroys objects of all kinds in every order. Permutations of small sets cover the dependencies;
// a set with one object of each kind is destroyed in orders that a seed selects.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "support/device.h"
#include "support/needs.h"
#include "support/random.h"
#include "verbs/pair.h"

namespace weft::verbs::testing {
namespace {

// Holds objects of any kind and destroys each on request.
class Objects {
 public:
  template <typename Object>
  Object& keep(Object&& object) {
    auto kept = std::make_shared<Object>(std::forward<Object>(object));
    objects_.push_back(kept);
    return *kept;
  }
  void let_go(std::size_t which) { objects_[which].reset(); }
  [[nodiscard]] std::size_t size() const { return objects_.size(); }

 private:
  std::vector<std::shared_ptr<void>> objects_;
};

using Maker = std::function<void(Objects&)>;

void let_go_in(const std::vector<std::size_t>& order, const Maker& make) {
  Objects objects;
  make(objects);
  ASSERT_EQ(objects.size(), order.size());
  for (const std::size_t which : order) objects.let_go(which);
}

std::vector<std::size_t> random_order(std::size_t count, std::uint64_t seed) {
  test::Random random(seed);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

// On other devices than Weft's, in a sample of the orders: there each turn asks the kernel.
void let_go_in_every_order(std::size_t count, const Maker& make) {
  if (!test::own_device()) {
    for (const std::uint64_t seed : test::seeds(50)) {
      SCOPED_TRACE(test::seed_trace(seed));
      let_go_in(random_order(count, seed), make);
      if (::testing::Test::HasFatalFailure()) return;
    }
    return;
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  do {
    let_go_in(order, make);
    if (::testing::Test::HasFatalFailure()) return;
  } while (std::ranges::next_permutation(order).found);
}

TEST(AnyOrder, QueuesAndMemory) {
  let_go_in_every_order(7, [](Objects& objects) {
    const auto& context = objects.keep(test::open_device());
    const auto& domain = objects.keep(context.create_domain());
    const auto& channel = objects.keep(context.create_channel());
    const auto& queue = objects.keep(context.create_completion_queue(4, {.channel = &channel}));
    const auto& shared = objects.keep(domain.create_shared_receive_queue({.receives = 4}));
    objects.keep(domain.allocate<int>(4));
    objects.keep(domain.queue_pair(queue, queue).shared_receive_queue(shared).build().release());
  });
}

TEST(AnyOrder, ExtendedQueuesAndDatagrams) {
  WEFT_NEEDS(test::open_device().create_extended_completion_queue(
      4, {.fields = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP}));
  let_go_in_every_order(7, [](Objects& objects) {
    const auto& context = objects.keep(test::open_device());
    const auto& domain = objects.keep(context.create_domain());
    const auto& channel = objects.keep(context.create_channel());
    const auto& extended = objects.keep(context.create_extended_completion_queue(
        4, {.channel = &channel, .fields = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP}));
    const auto& queue = objects.keep(context.create_completion_queue(4));
    objects.keep(domain.create_address_handle({.gid = context.query_gid(1, 0)}));
    objects.keep(domain.queue_pair(extended, queue, IBV_QPT_UD).build().activate(7));
  });
}

TEST(AnyOrder, WindowsAndPreparedQueuePairs) {
  WEFT_NEEDS(test::open_device().create_domain().allocate_window(IBV_MW_TYPE_2));
  let_go_in_every_order(7, [](Objects& objects) {
    const auto& context = objects.keep(test::open_device());
    const auto& domain = objects.keep(context.create_domain());
    objects.keep(domain.share());
    const auto& queue = objects.keep(context.create_completion_queue(4));
    objects.keep(domain.allocate<int>(4, Access::all | Access::bindable));
    objects.keep(domain.allocate_window(IBV_MW_TYPE_2));
    objects.keep(domain.queue_pair(queue, queue).build());
  });
}

TEST(AnyOrder, ConnectionManagement) {
  const EventChannel accepting;
  const Id listener(accepting);
  listener.bind({test::host(), 0});
  listener.listen();
  let_go_in_every_order(6, [&](Objects& objects) {
    const auto& events = objects.keep(EventChannel());
    const auto& id = objects.keep(Id(events));
    id.resolve_address({test::host(), listener.local_port()}, patience);
    (void)expect(events, RDMA_CM_EVENT_ADDR_RESOLVED);
    const auto& context = objects.keep(id.context());
    const auto& domain = objects.keep(context.create_domain());
    const auto& queue = objects.keep(context.create_completion_queue(4));
    const ibv_qp_cap capacity{.max_send_wr = 1,
                              .max_recv_wr = 1,
                              .max_send_sge = 1,
                              .max_recv_sge = 1,
                              .max_inline_data = 0};
    objects.keep(id.create_queue_pair(domain, queue, queue, capacity));
  });
}

void await_one(const CompletionQueue& queue) {
  std::array<Completion, 1> one;
  ASSERT_EQ(queue.wait(one, patience).size(), 1U);
  EXPECT_TRUE(one[0].ok()) << one[0].status_name();
}

// Makes one object of each kind, all in use: a bound window, requests that never complete, a
// connected queue pair.
void make_one_of_each(Objects& objects) {
  const auto& context = objects.keep(test::open_device());
  const auto& domain = objects.keep(context.create_domain());
  const auto& channel = objects.keep(context.create_channel());
  const auto& queue = objects.keep(context.create_completion_queue(16, {.channel = &channel}));
  const auto& extended = objects.keep(context.create_extended_completion_queue(16));
  const auto& shared = objects.keep(domain.create_shared_receive_queue({.receives = 4}));
  const auto& region = objects.keep(domain.allocate<char>(256, Access::all | Access::bindable));
  auto& window = objects.keep(domain.allocate_window(IBV_MW_TYPE_2));
  const auto& address =
      objects.keep(domain.create_address_handle({.gid = context.query_gid(1, 0)}));
  auto prepared = domain.queue_pair(queue, extended)
                      .access(Access::all)
                      .max_send_requests(4)
                      .shared_receive_queue(shared)
                      .build();
  const Endpoint endpoint = prepared.endpoint();
  const auto& itself = objects.keep(std::move(prepared).handshake(endpoint));
  const auto& datagrams =
      objects.keep(domain.queue_pair(queue, queue, IBV_QPT_UD).build().activate(7));
  const auto& events = objects.keep(EventChannel());
  const auto& listener = objects.keep(Id(events));
  listener.bind({test::host(), 0});
  listener.listen();

  ASSERT_EQ(shared.post_receive(region.slice(0, 64), 1), 0);
  ASSERT_EQ(datagrams.post_receive(region.slice(0, 64), 2), 0);
  ASSERT_EQ(itself.post_bind(window, {.region = region, .offset_bytes = 64, .bytes = 64}, 3), 0);
  await_one(queue);
  ASSERT_EQ(itself.post_write(region.slice(0, 8), window.remote().slice(0, 8), 4), 0);
  await_one(queue);
  ASSERT_EQ(datagrams.post_send_to({address, datagrams.number() ^ 1, 7}, region.slice(64, 8), 5),
            0);
}

TEST(AnyOrder, OneOfEachInUse) {
  const auto context = test::open_device();
  WEFT_NEEDS_NUMBERS(context);
  WEFT_NEEDS(context.create_extended_completion_queue(4));
  WEFT_NEEDS(context.create_domain().allocate_window(IBV_MW_TYPE_2));
  for (const std::uint64_t seed : test::seeds(test::turns(100, 3))) {
    SCOPED_TRACE(test::seed_trace(seed));
    let_go_in(random_order(13, seed), make_one_of_each);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace weft::verbs::testing
