// A device that shows and grants less than it has (Settings::adapter).
#include <cerrno>
#include <new>
#include <vector>

#include "device/pair_fixture.h"
#include "device/query.h"

namespace weft::device {
namespace {

PairOptions with(std::vector<std::pair<Capability, std::uint64_t>> limits) {
  PairOptions options;
  options.settings.address = "127.0.0.1";
  for (const auto& [capability, most] : limits) {
    options.settings.adapter.restrict_to(capability, most);
  }
  return options;
}

std::unique_ptr<Device> make(const PairOptions& options) {
  auto made = Device::create(options.settings);
  EXPECT_TRUE(made.ok());
  return std::move(*made);
}

// One end, and the attempt to create one more queue pair in it.
struct Maker {
  explicit Maker(Device& device, const EndOptions& options = {}) : end(device, options) {}

  std::shared_ptr<QueuePair> create(const ibv_qp_cap& cap) {
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.send_cq = attributes.recv_cq = end.queue.verbs();
    attributes.cap = cap;
    errno = 0;
    auto made = QueuePair::create(end.context, &end.domain->pd, attributes);
    granted = attributes.cap;
    return made;
  }

  End end;
  ibv_qp_cap granted{};
};

TEST(Adapter, ShowsItsLimits) {
  const auto device = make(with({{Capability::queue_pairs, 5},
                                 {Capability::completion_queues, 6},
                                 {Capability::regions, 7},
                                 {Capability::slices, 8},
                                 {Capability::work_requests, 90},
                                 {Capability::windows, 0},
                                 {Capability::read_depth, 3},
                                 {Capability::atomics, 0}}));
  Context context(*device);
  ibv_device_attr shown{};
  query_device(context, shown);
  EXPECT_EQ(shown.max_qp, 5);
  EXPECT_EQ(shown.max_cq, 6);
  EXPECT_EQ(shown.max_mr, 7);
  EXPECT_EQ(shown.max_sge, 8);
  EXPECT_EQ(shown.max_srq_sge, 8);
  EXPECT_EQ(shown.max_qp_wr, 90);
  EXPECT_EQ(shown.max_qp_rd_atom, 3);
  EXPECT_EQ(shown.max_qp_init_rd_atom, 3);
  EXPECT_EQ(shown.max_res_rd_atom, 15);
  EXPECT_EQ(shown.atomic_cap, IBV_ATOMIC_NONE);
  EXPECT_EQ(shown.device_cap_flags & IBV_DEVICE_MEM_WINDOW, 0U);
  ibv_device_attr_ex extended{};
  ASSERT_EQ(query_device_ex(context, &extended, sizeof extended), 0);
  EXPECT_EQ(extended.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC, 0U);
}

TEST(Adapter, CountsQueuePairsUntilTheyAreDestroyed) {
  const auto device = make(with({{Capability::queue_pairs, 2}}));
  Maker maker(*device);  // one
  const auto second = maker.create({});
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(maker.create({}), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(device->adapter().refused(Capability::queue_pairs), 1U);
  // The reference that is left here, as the engine's may be, does not take a place.
  second->destroy();
  EXPECT_EQ(device->adapter().objects(Capability::queue_pairs), 1U);
  const auto third = maker.create({});
  ASSERT_NE(third, nullptr);
  third->destroy();
}

TEST(Adapter, RefusesLargerQueuePairs) {
  const auto device = make(with(
      {{Capability::work_requests, 64}, {Capability::slices, 4}, {Capability::inline_bytes, 64}}));
  Maker maker(*device);
  const auto error_of = [&](std::uint32_t ibv_qp_cap::*field, std::uint32_t value) {
    ibv_qp_cap cap{};
    cap.*field = value;
    const auto made = maker.create(cap);
    if (!made) return errno;
    made->destroy();
    return 0;
  };
  EXPECT_EQ(error_of(&ibv_qp_cap::max_send_wr, 64), 0);
  EXPECT_EQ(error_of(&ibv_qp_cap::max_send_wr, 65), EINVAL);
  EXPECT_EQ(error_of(&ibv_qp_cap::max_recv_wr, 64), 0);
  EXPECT_EQ(error_of(&ibv_qp_cap::max_recv_wr, 65), EINVAL);
  EXPECT_EQ(error_of(&ibv_qp_cap::max_send_sge, 4), 0);
  EXPECT_EQ(error_of(&ibv_qp_cap::max_send_sge, 5), EINVAL);
  EXPECT_EQ(error_of(&ibv_qp_cap::max_recv_sge, 5), EINVAL);
  EXPECT_EQ(error_of(&ibv_qp_cap::max_inline_data, 65), EINVAL);
  EXPECT_EQ(error_of(&ibv_qp_cap::max_inline_data, 1), 0);
  EXPECT_EQ(device->adapter().refused(Capability::slices), 2U);
}

// Where less is possible than the bytes that the device usually adds, it does not add them.
TEST(Adapter, GrantsNoMoreInlineThanThereIs) {
  const auto device = make(with({{Capability::inline_bytes, 16}}));
  EndOptions options;
  options.inline_bytes = 0;
  Maker maker(*device, options);
  const auto made = maker.create({});
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(maker.granted.max_inline_data, 16U);
  made->destroy();
}

TEST(Adapter, CountsOtherObjects) {
  const auto device = make(with({{Capability::completion_queues, 2},
                                 {Capability::regions, 1},
                                 {Capability::windows, 1},
                                 {Capability::domains, 2},
                                 {Capability::completions, 300},
                                 {Capability::region_bytes, 100}}));
  End end(*device, {});  // a completion queue and a domain
  {
    CompletionQueue second(end.context, 1, nullptr, nullptr);
    EXPECT_THROW(CompletionQueue(end.context, 1, nullptr, nullptr), std::bad_alloc);
  }
  CompletionQueue again(end.context, 1, nullptr, nullptr);
  EXPECT_EQ(again.resize(301), EINVAL);
  EXPECT_EQ(again.resize(-1), EINVAL);
  EXPECT_EQ(again.resize(300), 0);

  const std::unique_ptr<ProtectionDomain> domain(end.context.allocate_domain());
  EXPECT_THROW((void)end.context.allocate_domain(), std::bad_alloc);

  std::vector<std::uint8_t> memory(200);
  const auto enroll = [&](std::size_t bytes) {
    return end.context.register_memory(*domain, memory.data(), bytes, 0, 0);
  };
  EXPECT_EQ(enroll(101), nullptr);
  EXPECT_EQ(errno, EINVAL);
  for (int round = 0; round < 2; ++round) {
    ibv_mr* const region = enroll(100);
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(enroll(100), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    ibv_mw* const window = end.context.allocate_window(*domain, IBV_MW_TYPE_1);
    ASSERT_NE(window, nullptr);
    EXPECT_EQ(end.context.allocate_window(*domain, IBV_MW_TYPE_1), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(end.context.deallocate_window(*MemoryWindow::of(window)), 0);
    EXPECT_EQ(end.context.deregister_memory(region), 0);
  }
  EXPECT_EQ(device->adapter().refused(Capability::regions), 2U);
}

TEST(Adapter, PostsNoMissingOperations) {
  Pair pair(with({{Capability::atomics, 0}, {Capability::immediates, 0}}));
  auto local = pair.a.buffer(8);
  auto remote = pair.b.buffer(8);
  ibv_send_wr request{};
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.atomic = {remote->address(), 1, 0, remote->rkey()};
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  EXPECT_EQ(pair.a.post(request, {local->sge(0, 8)}), EOPNOTSUPP);
  request.wr.rdma = {remote->address(), remote->rkey()};
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  EXPECT_EQ(pair.a.post(request, {local->sge(0, 8)}), EOPNOTSUPP);
  request.opcode = IBV_WR_SEND_WITH_IMM;
  EXPECT_EQ(pair.a.post(request, {local->sge(0, 8)}), EOPNOTSUPP);
  EXPECT_EQ(pair.device->adapter().refused(Capability::atomics), 1U);
  EXPECT_EQ(pair.device->adapter().refused(Capability::immediates), 2U);
  // The queue pair still works.
  ASSERT_EQ(pair.a.write(1, {local->sge(0, 8)}, remote->address(), remote->rkey()), 0);
  EXPECT_EQ(pair.a.await().status, IBV_WC_SUCCESS);
}

// A queue pair grants no atomics, whatever the program asks for.
TEST(Adapter, GrantsNoMissingRights) {
  const auto device = make(with({{Capability::atomics, 0}}));
  End end(*device, {});
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  end.queue_pair->query(attributes, initial);
  EXPECT_EQ(attributes.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC, 0U);
  attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = all_access;
  ASSERT_EQ(end.queue_pair->modify(
                attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  end.queue_pair->query(attributes, initial);
  EXPECT_EQ(static_cast<unsigned>(attributes.qp_access_flags),
            all_access & ~static_cast<unsigned>(IBV_ACCESS_REMOTE_ATOMIC));
}

TEST(Adapter, LimitsReadDepth) {
  const auto device = make(with({{Capability::read_depth, 2}}));
  End end(*device, {});
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  ASSERT_EQ(end.queue_pair->modify(
                attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  ibv_qp_attr to_ready{};
  to_ready.qp_state = IBV_QPS_RTR;
  to_ready.max_dest_rd_atomic = 3;
  constexpr int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  EXPECT_EQ(end.queue_pair->modify(to_ready, mask), EINVAL);
  EXPECT_EQ(device->adapter().refused(Capability::read_depth), 1U);
}

}  // namespace
}  // namespace weft::device
