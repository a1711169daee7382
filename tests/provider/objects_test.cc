// Life cycles through the table, with the errno values of libibverbs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "provider/embedded.h"

namespace weft::provider {
namespace {

class Objects : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    ibv_device** list = table_.get_device_list(&count);
    ASSERT_NE(list, nullptr);
    ASSERT_EQ(count, 1);
    EXPECT_EQ(list[1], nullptr);
    context_ = table_.open_device(list[0]);
    table_.free_device_list(list);  // an open device stays valid
    ASSERT_NE(context_, nullptr);
    pd_ = table_.alloc_pd(context_);
  }

  void TearDown() override {
    EXPECT_EQ(table_.dealloc_pd(pd_), 0);
    EXPECT_EQ(table_.close_device(context_), 0);
  }

  ibv_cq* make_cq(ibv_comp_channel* channel = nullptr) {
    return table_.create_cq(context_, 16, this, channel, 0);
  }

  static ibv_qp_init_attr attributes_with(ibv_cq* cq) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap = {4, 4, 2, 2, 64};
    attributes.qp_type = IBV_QPT_RC;
    return attributes;
  }

  // From the state in which queue pairs are made, which cannot fail: see check_transition().
  void fail(ibv_qp* qp) {
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_INIT;
    state.port_num = 1;
    EXPECT_EQ(table_.modify_qp(qp, &state, initial_mask), 0);
    state.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(table_.modify_qp(qp, &state, IBV_QP_STATE), 0);
    EXPECT_EQ(qp->state, IBV_QPS_ERR);
  }
  static constexpr int initial_mask =
      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

  // The errno value of a call that returns null.
  template <typename T>
  static int error_of(T* made) {
    return made ? 0 : errno;
  }

  const Table& table_ = embedded();
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
};

TEST_F(Objects, TheDeviceHasNameAndGuid) {
  EXPECT_STREQ(table_.get_device_name(context_->device), "weft0");
  EXPECT_NE(table_.get_device_guid(context_->device), 0U);
  // Vendor libraries recognize their devices by a pointer after it.
  EXPECT_EQ(*reinterpret_cast<void**>(context_->device + 1), nullptr);
}

TEST_F(Objects, EachOpenGivesItsOwnContext) {
  ibv_context* other = table_.open_device(context_->device);
  ASSERT_NE(other, nullptr);
  EXPECT_NE(other, context_);
  EXPECT_EQ(other->device, context_->device);
  EXPECT_NE(other->async_fd, context_->async_fd);
  EXPECT_EQ(table_.close_device(other), 0);
}

TEST_F(Objects, WhatIsLeftBehindDoesNotStopClosing) {
  // Static, because objects that a program does not destroy would be reported as leaks.
  static ibv_pd* pd = nullptr;
  static ibv_cq* cq = nullptr;
  ibv_context* other = table_.open_device(context_->device);
  pd = table_.alloc_pd(other);
  cq = table_.create_cq(other, 4, nullptr, nullptr, 0);
  ibv_qp_init_attr attributes = attributes_with(cq);
  ASSERT_NE(table_.create_qp(pd, &attributes), nullptr);
  EXPECT_EQ(table_.close_device(other), 0);
}

// Linux destroys what the program has left without asking the program.
TEST_F(Objects, AnEventThatIsNotAcknowledgedDoesNotStopClosing) {
  static ibv_pd* pd = nullptr;
  static ibv_cq* cq = nullptr;
  static ibv_srq* srq = nullptr;
  ibv_context* other = table_.open_device(context_->device);
  pd = table_.alloc_pd(other);
  cq = table_.create_cq(other, 4, nullptr, nullptr, 0);
  ibv_srq_init_attr shared{.srq_context = this, .attr = {8, 1, 0}};
  srq = table_.create_srq(pd, &shared);
  ibv_qp_init_attr attributes = attributes_with(cq);
  attributes.srq = srq;
  ibv_qp* const qp = table_.create_qp(pd, &attributes);
  ASSERT_NE(qp, nullptr);
  fail(qp);
  ibv_async_event event{};
  ASSERT_EQ(table_.get_async_event(other, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(table_.close_device(other), 0);
}

TEST_F(Objects, OperationsOfOldProgramsAreThere) {
  ASSERT_NE(context_->ops._compat_query_port, nullptr);
  ASSERT_NE(context_->ops._compat_query_device, nullptr);
  // Exactly the members that the structure had then.
  std::vector<unsigned char> room(sizeof(ibv_port_attr), 0xAA);
  auto* attributes = reinterpret_cast<_compat_ibv_port_attr*>(room.data());
  EXPECT_EQ(context_->ops._compat_query_port(context_, 1, attributes), 0);
  EXPECT_EQ(reinterpret_cast<ibv_port_attr*>(room.data())->state, IBV_PORT_ACTIVE);
  EXPECT_THAT(std::vector(room.begin() + 48, room.end()), ::testing::Each(0xAA));
}

TEST_F(Objects, QueriesAnswer) {
  ibv_device_attr device{};
  EXPECT_EQ(table_.query_device(context_, &device), 0);
  EXPECT_EQ(device.phys_port_cnt, 1);
  auto* port = reinterpret_cast<_compat_ibv_port_attr*>(&device);
  EXPECT_EQ(table_.query_port(context_, 2, port), EINVAL);
  ibv_gid gid{};
  EXPECT_EQ(table_.query_gid(context_, 1, 0, &gid), 0);
  EXPECT_EQ(table_.query_gid(context_, 1, 1000, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  int type = 0;
  EXPECT_EQ(table_.query_gid_type(context_, 1, 1, &type), 0);
  EXPECT_EQ(type, 1);
  std::uint16_t pkey = 0;
  EXPECT_EQ(table_.query_pkey(context_, 1, 0, &pkey), 0);
  EXPECT_EQ(table_.get_pkey_index(context_, 1, pkey), 0);
  EXPECT_EQ(table_.get_pkey_index(context_, 1, 0), -1);
}

TEST_F(Objects, GidEntriesFillWhatTheCallerHasRoomFor) {
  ibv_gid gid{};
  ASSERT_EQ(table_.query_gid(context_, 1, 0, &gid), 0);
  ibv_gid_entry entry{};
  EXPECT_EQ(table_.query_gid_ex(context_, 1, 0, &entry, 0, sizeof entry), 0);
  EXPECT_EQ(entry.gid.global.interface_id, gid.global.interface_id);
  EXPECT_EQ(table_.query_gid_ex(context_, 1, 0, &entry, 1, sizeof entry), EOPNOTSUPP);
  EXPECT_EQ(table_.query_gid_ex(context_, 1, 1000, &entry, 0, sizeof entry), EINVAL);

  struct Larger {
    ibv_gid_entry entry;
    std::uint64_t added;
  };
  std::vector<Larger> entries(64, Larger{{}, ~std::uint64_t{0}});
  const auto count =
      table_.query_gid_table(context_, &entries[0].entry, entries.size(), 0, sizeof(Larger));
  ASSERT_GT(count, 0);
  EXPECT_EQ(entries[0].added, 0U);
  EXPECT_EQ(entries[static_cast<std::size_t>(count)].added, ~std::uint64_t{0});
  EXPECT_EQ(table_.query_gid_table(context_, &entries[0].entry, 0, 0, sizeof(Larger)), -EINVAL);
}

TEST_F(Objects, FilesOfSysfs) {
  std::vector<char> text(64);
  EXPECT_EQ(
      table_.read_sysfs_file(context_->device->ibdev_path, "board_id", text.data(), text.size()),
      4);
  EXPECT_STREQ(text.data(), "weft");
  EXPECT_EQ(table_.read_sysfs_file("/no/such", "file", text.data(), text.size()), -1);
  // Of all programs of the user, so that the value is any.
  const int length = table_.read_sysfs_file(
      context_->device->ibdev_path, "ports/1/counters/port_xmit_data", text.data(), text.size());
  ASSERT_GT(length, 0);
  EXPECT_EQ(std::string_view(text.data()).find_first_not_of("0123456789"), std::string_view::npos);
  EXPECT_EQ(table_.read_sysfs_file(context_->device->ibdev_path, "ports/1/counters/none",
                                   text.data(), text.size()),
            -1);
}

TEST_F(Objects, DomainsInUseStay) {
  char buffer[64];
  ibv_mr* mr = table_.reg_mr(pd_, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(table_.dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(table_.dereg_mr(mr), 0);
}

TEST_F(Objects, MemoryRegistrationIsChecked) {
  char buffer[64];
  // Optional flags that a device does not know are ignored (perftest: relaxed ordering).
  ibv_mr* mr = table_.reg_mr_iova2(pd_, buffer, sizeof buffer, 0x1000, 0x100001);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, buffer);
  EXPECT_EQ(mr->length, sizeof buffer);
  EXPECT_EQ(
      table_.rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
      IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EINVAL);  // IBV_ACCESS_REMOTE_WRITE needs IBV_ACCESS_LOCAL_WRITE
  EXPECT_EQ(table_.rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(table_.dereg_mr(mr), 0);

  EXPECT_EQ(error_of(table_.reg_mr(pd_, buffer, sizeof buffer, IBV_ACCESS_REMOTE_WRITE)), EINVAL);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* hole = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(munmap(hole, page), 0);
  EXPECT_EQ(error_of(table_.reg_mr(pd_, hole, page, IBV_ACCESS_LOCAL_WRITE)), EFAULT);
}

// Linux pins the pages of a region, and writes to them where the rights allow writing.
TEST_F(Objects, MemoryMustAllowWhatItsRegionDoes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const at = mmap(nullptr, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  EXPECT_EQ(error_of(table_.reg_mr(pd_, at, page, IBV_ACCESS_LOCAL_WRITE)), EFAULT);
  EXPECT_EQ(error_of(table_.reg_mr(pd_, at, page, IBV_ACCESS_MW_BIND)), EFAULT);
  ibv_mr* const mr = table_.reg_mr(pd_, at, 2 * page, IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(
      table_.rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
      IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(table_.dereg_mr(mr), 0);
  ASSERT_EQ(mprotect(at, page, PROT_NONE), 0);
  EXPECT_EQ(error_of(table_.reg_mr(pd_, at, page, 0)), EFAULT);
  ASSERT_EQ(munmap(at, 2 * page), 0);
}

TEST_F(Objects, CompletionQueueArguments) {
  EXPECT_EQ(error_of(table_.create_cq(context_, 0, nullptr, nullptr, 0)), EINVAL);
  EXPECT_EQ(error_of(table_.create_cq(context_, -1, nullptr, nullptr, 0)), EINVAL);
  EXPECT_EQ(error_of(table_.create_cq(context_, 1 << 30, nullptr, nullptr, 0)), EINVAL);
  EXPECT_EQ(error_of(table_.create_cq(context_, 1, nullptr, nullptr, 1)), EINVAL);
  EXPECT_EQ(error_of(table_.create_cq(context_, 1, nullptr, nullptr, -1)), EINVAL);
  ibv_cq* cq = make_cq();
  ASSERT_NE(cq, nullptr);
  EXPECT_GE(cq->cqe, 16);
  EXPECT_EQ(table_.resize_cq(cq, 64), 0);
  EXPECT_GE(cq->cqe, 64);
  EXPECT_EQ(table_.resize_cq(cq, 0), EINVAL);
  EXPECT_EQ(table_.destroy_cq(cq), 0);
}

TEST_F(Objects, ChannelsInUseStay) {
  ibv_comp_channel* channel = table_.create_comp_channel(context_);
  ibv_cq* cq = make_cq(channel);
  EXPECT_EQ(table_.destroy_comp_channel(channel), EBUSY);
  EXPECT_EQ(table_.destroy_cq(cq), 0);
  EXPECT_EQ(table_.destroy_comp_channel(channel), 0);
}

TEST_F(Objects, QueuePairsHoldWhatTheyUse) {
  ibv_cq* cq = make_cq();
  ibv_srq_init_attr shared{.srq_context = this, .attr = {8, 1, 0}};
  ibv_srq* srq = table_.create_srq(pd_, &shared);
  ASSERT_NE(srq, nullptr);
  ibv_qp_init_attr attributes = attributes_with(cq);
  attributes.srq = srq;
  ibv_qp* qp = table_.create_qp(pd_, &attributes);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(attributes.cap.max_recv_wr, 0U);  // receives are those of the shared queue
  EXPECT_EQ(table_.destroy_cq(cq), EBUSY);
  EXPECT_EQ(table_.destroy_srq(srq), EBUSY);
  EXPECT_EQ(table_.dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(table_.destroy_qp(qp), 0);
  EXPECT_EQ(table_.destroy_srq(srq), 0);
  EXPECT_EQ(table_.destroy_cq(cq), 0);
}

TEST_F(Objects, QueuePairAttributes) {
  ibv_cq* cq = make_cq();
  ibv_qp_init_attr attributes = attributes_with(cq);
  attributes.qp_context = this;
  attributes.sq_sig_all = 1;
  ibv_qp* qp = table_.create_qp(pd_, &attributes);
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(attributes.cap.max_send_wr, 4U);
  EXPECT_GE(attributes.cap.max_inline_data, 64U);
  EXPECT_EQ(table_.qp_to_qp_ex(qp), nullptr);

  ibv_qp_attr state{};
  ibv_qp_init_attr initial{};
  EXPECT_EQ(table_.query_qp(qp, &state, IBV_QP_STATE | IBV_QP_CAP, &initial), 0);
  EXPECT_EQ(state.qp_state, IBV_QPS_RESET);
  EXPECT_EQ(initial.qp_context, this);
  EXPECT_EQ(initial.send_cq, cq);
  EXPECT_EQ(initial.sq_sig_all, 1);
  EXPECT_EQ(initial.cap.max_send_wr, attributes.cap.max_send_wr);

  state.qp_state = IBV_QPS_SQD;
  EXPECT_EQ(table_.modify_qp(qp, &state, IBV_QP_STATE), EINVAL);
  state.qp_state = IBV_QPS_ERR;
  EXPECT_EQ(table_.modify_qp(qp, &state, IBV_QP_STATE), EINVAL);
  fail(qp);
  EXPECT_EQ(table_.destroy_qp(qp), 0);
  EXPECT_EQ(table_.destroy_cq(cq), 0);
}

TEST_F(Objects, QueuePairLimits) {
  ibv_cq* cq = make_cq();
  const auto refused = [&](auto change) {
    ibv_qp_init_attr attributes = attributes_with(cq);
    change(attributes);
    return error_of(table_.create_qp(pd_, &attributes));
  };
  // libfabric doubles the inline size until it is refused.
  EXPECT_EQ(refused([](auto& a) { a.cap.max_inline_data = 1 << 20; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.cap.max_send_wr = 1 << 20; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.cap.max_recv_sge = 1000; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.send_cq = nullptr; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.qp_type = IBV_QPT_RAW_PACKET; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& a) { a.qp_type = static_cast<ibv_qp_type>(0); }), EINVAL);
  EXPECT_EQ(table_.destroy_cq(cq), 0);
}

// Adapters grant at least one slice to a request, and some programs pass 0 and use one.
TEST_F(Objects, ASliceCountOfZeroIsRoundedUp) {
  ibv_cq* cq = make_cq();
  ibv_qp_init_attr attributes = attributes_with(cq);
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 0;
  ibv_qp* qp = table_.create_qp(pd_, &attributes);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(attributes.cap.max_send_sge, 1U);
  EXPECT_EQ(attributes.cap.max_recv_sge, 1U);
  ibv_qp_attr state{};
  ibv_qp_init_attr initial{};
  EXPECT_EQ(table_.query_qp(qp, &state, IBV_QP_CAP, &initial), 0);
  EXPECT_EQ(initial.cap.max_send_sge, 1U);
  EXPECT_EQ(table_.destroy_qp(qp), 0);
  EXPECT_EQ(table_.destroy_cq(cq), 0);
}

// Programs that ask for on-demand paging give the same advice for regions of adapters without it.
TEST_F(Objects, AdviceOnAnOrdinaryRegionIsAccepted) {
  std::array<std::uint8_t, 64> bytes{};
  ibv_mr* mr = table_.reg_mr(pd_, bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  const auto advise = [&](std::uint32_t length, std::uint32_t lkey) {
    ibv_sge slice{reinterpret_cast<std::uintptr_t>(bytes.data()), length, lkey};
    return ibv_advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &slice, 1);
  };
  EXPECT_EQ(advise(64, mr->lkey), 0);
  EXPECT_EQ(advise(65, mr->lkey), EFAULT);
  EXPECT_EQ(advise(64, mr->lkey + 0x1000), ENOENT);
  EXPECT_EQ(table_.dereg_mr(mr), 0);
}

TEST_F(Objects, SharedReceiveQueueArguments) {
  ibv_srq_init_attr attributes{.srq_context = nullptr, .attr = {0, 1, 0}};
  EXPECT_EQ(error_of(table_.create_srq(pd_, &attributes)), EINVAL);
  attributes.attr = {8, 1000, 0};
  EXPECT_EQ(error_of(table_.create_srq(pd_, &attributes)), EINVAL);
  attributes.attr = {8, 2, 0};
  ibv_srq* srq = table_.create_srq(pd_, &attributes);
  ASSERT_NE(srq, nullptr);
  ibv_srq_attr now{};
  EXPECT_EQ(table_.query_srq(srq, &now), 0);
  EXPECT_EQ(now.max_wr, 8U);
  now.srq_limit = 9;
  EXPECT_EQ(table_.modify_srq(srq, &now, IBV_SRQ_LIMIT), EINVAL);
  now.srq_limit = 3;
  EXPECT_EQ(table_.modify_srq(srq, &now, IBV_SRQ_LIMIT), 0);
  EXPECT_EQ(table_.query_srq(srq, &now), 0);
  EXPECT_EQ(now.srq_limit, 3U);
  EXPECT_EQ(table_.destroy_srq(srq), 0);
}

TEST_F(Objects, AddressHandles) {
  ibv_ah_attr address{};
  EXPECT_EQ(error_of(table_.create_ah(pd_, &address)), EINVAL);
  address.is_global = 1;
  address.port_num = 1;
  ASSERT_EQ(table_.query_gid(context_, 1, 0, &address.grh.dgid), 0);
  ibv_ah* handle = table_.create_ah(pd_, &address);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(handle->pd, pd_);
  EXPECT_EQ(table_.dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(table_.destroy_ah(handle), 0);
  ibv_wc completion{};
  ibv_grh grh{};
  EXPECT_EQ(table_.init_ah_from_wc(context_, 1, &completion, &grh, &address), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(error_of(table_.create_ah_from_wc(pd_, &completion, &grh, 1)), EINVAL);
}

TEST_F(Objects, OnlyDatagramsJoinGroups) {
  ibv_cq* cq = make_cq();
  ibv_qp_init_attr attributes = attributes_with(cq);
  ibv_gid group{};
  group.raw[0] = 0xFF;
  ibv_qp* connected = table_.create_qp(pd_, &attributes);
  EXPECT_EQ(table_.attach_mcast(connected, &group, 0), EINVAL);
  attributes.qp_type = IBV_QPT_UD;
  ibv_qp* datagram = table_.create_qp(pd_, &attributes);
  ASSERT_NE(datagram, nullptr);
  EXPECT_EQ(table_.detach_mcast(datagram, &group, 0), EINVAL) << "not a member";
  group.raw[0] = 0;
  EXPECT_EQ(table_.attach_mcast(datagram, &group, 0), EINVAL) << "no group";
  EXPECT_EQ(table_.destroy_qp(connected), 0);
  EXPECT_EQ(table_.destroy_qp(datagram), 0);
  EXPECT_EQ(table_.destroy_cq(cq), 0);
}

// Each is the call of its turn, so that one that does not ask is seen by the one behind it.
TEST(FaultyObjects, EachWayToRegisterMemoryFailsOnPurpose) {
  const Table& table = embedded();
  DeviceOptions options{.address = "127.0.0.1"};
  options.faults = "EIO at reg-mr nth=1; EIO at reg-mr nth=3; EIO at reg-mr nth=5";
  std::string why;
  ibv_context* const context = table.open_configured(options, why);
  ASSERT_NE(context, nullptr) << why;
  ibv_pd* const domain = table.alloc_pd(context);
  ibv_alloc_dm_attr wanted{};
  wanted.length = 64;
  ibv_dm* const memory = ibv_alloc_dm(context, &wanted);
  ASSERT_NE(memory, nullptr);
  errno = 0;
  EXPECT_EQ(ibv_reg_dm_mr(domain, memory, 0, 64, IBV_ACCESS_ZERO_BASED), nullptr);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(ibv_free_dm(memory), 0) << "nothing has registered it";
  char buffer[64];
  ibv_mr* const region = table.reg_mr(domain, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(region, nullptr);
  errno = 0;
  EXPECT_EQ(table.rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(table.rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  errno = 0;
  EXPECT_EQ(ibv_alloc_null_mr(domain), nullptr);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(table.dereg_mr(region), 0);
  EXPECT_EQ(table.dealloc_pd(domain), 0);
  EXPECT_EQ(table.close_device(context), 0);
}

TEST_F(Objects, WhatIsNotBuiltSaysSo) {
  ibv_ah_attr address{};
  EXPECT_EQ(table_.resolve_eth_l2_from_gid(context_, &address, nullptr, nullptr), EOPNOTSUPP);
}

TEST_F(Objects, ForkIsSafe) {
  EXPECT_EQ(table_.fork_init(), 0);
  EXPECT_EQ(table_.is_fork_initialized(), IBV_FORK_UNNEEDED);
}

}  // namespace
}  // namespace weft::provider
