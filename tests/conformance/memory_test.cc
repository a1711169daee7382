// ibv_rereg_mr(3), ibv_reg_mr(3) with its kinds, ibv_advise_mr(3), ibv_alloc_dm(3),
// ibv_alloc_null_mr(3), ibv_alloc_parent_domain(3).
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "conformance/pair.h"

namespace conformance {
namespace {

class Memory : public Pair {
 protected:
  void TearDown() override {
    source_.reset();
    Pair::TearDown();
  }

  void prepare() {
    ASSERT_TRUE(connect()) << strerror(errno);
    source_ = std::make_unique<Buffer>(pd_, 64);
    source_->bytes.assign(64, 7);
  }

  ibv_wc_status write(std::uint64_t address, std::uint32_t rkey) {
    EXPECT_EQ(a_.post(write_to(address, rkey), {source_->slice(0, 16)}), 0);
    return a_.await().status;
  }

  ibv_device_attr_ex device() {
    ibv_device_attr_ex attributes{};
    EXPECT_EQ(ibv_query_device_ex(context_, nullptr, &attributes), 0);
    return attributes;
  }

  std::unique_ptr<Buffer> source_;
};

TEST_F(Memory, ReregistrationChangesRights) {
  prepare();
  Buffer target(pd_, 64, IBV_ACCESS_LOCAL_WRITE);
  const int changed = ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  NEEDS(changed == 0);
  EXPECT_EQ(write(target.address(), target.mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(target.bytes[0], 7);
  ASSERT_EQ(ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_LOCAL_WRITE),
            0);
  EXPECT_EQ(write(target.address() + 32, target.mr->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(target.bytes[32], 0);
}

TEST_F(Memory, ReregistrationMovesTheRegion) {
  prepare();
  Buffer target(pd_, 64);
  std::vector<std::uint8_t> other(64);
  // An initiator that remembers where the region was must find the new place.
  EXPECT_EQ(write(target.address(), target.mr->rkey), IBV_WC_SUCCESS);
  const int changed = ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr,
                                   other.data(), other.size(), 0);
  NEEDS(changed == 0);
  EXPECT_EQ(target.mr->addr, other.data());
  EXPECT_EQ(write(reinterpret_cast<std::uintptr_t>(other.data()), target.mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(other[0], 7);
  EXPECT_EQ(write(target.address(), target.mr->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Memory, ReregistrationMovesToAnotherDomain) {
  prepare();
  ibv_pd* other = ibv_alloc_pd(context_);
  ASSERT_NE(other, nullptr);
  Buffer target(pd_, 64);
  const int changed = ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0);
  if (changed == 0) {
    EXPECT_NE(ibv_dealloc_pd(other), 0);  // in use now
    EXPECT_EQ(write(target.address(), target.mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_rereg_mr(target.mr, IBV_REREG_MR_CHANGE_PD, pd_, nullptr, 0, 0), 0);
  }
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  NEEDS(changed == 0);
}

TEST_F(Memory, MayHaveAnotherAddressOnTheWire) {
  prepare();
  std::vector<std::uint8_t> bytes(64);
  ibv_mr* mr = ibv_reg_mr_iova(
      pd_, bytes.data(), 64, 0x12340000 + (reinterpret_cast<std::uintptr_t>(bytes.data()) & 0xFFF),
      all_access);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  const std::uint64_t named = 0x12340000 + (reinterpret_cast<std::uintptr_t>(bytes.data()) & 0xFFF);
  EXPECT_EQ(write(named + 8, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(bytes[8], 7);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, MayBeginAtZero) {
  prepare();
  std::vector<std::uint8_t> bytes(64);
  ibv_mr* mr = ibv_reg_mr(pd_, bytes.data(), 64, all_access | IBV_ACCESS_ZERO_BASED);
  NEEDS(mr);
  EXPECT_EQ(write(48, mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(bytes[48], 7);
  EXPECT_EQ(write(49, mr->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, OnDemandNeedNotExistYet) {
  prepare();
  NEEDS(device().odp_caps.general_caps & IBV_ODP_SUPPORT);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* at = mmap(nullptr, 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  ibv_mr* mr = ibv_reg_mr(pd_, at, 2 * page, all_access | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  ASSERT_EQ(mprotect(at, page, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(write(reinterpret_cast<std::uintptr_t>(at), mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(*static_cast<std::uint8_t*>(at), 7);
  // The other page is still inaccessible: a write to it must end the connection and not the
  // program.
  EXPECT_EQ(write(reinterpret_cast<std::uintptr_t>(at) + page, mr->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(munmap(at, 2 * page), 0);
}

TEST_F(Memory, OnDemandMayBeAllThereIs) {
  prepare();
  NEEDS(device().odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT);
  ibv_mr* mr = ibv_reg_mr(pd_, nullptr, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  std::vector<std::uint8_t> from(32, 5);
  std::vector<std::uint8_t> to(32);
  ASSERT_EQ(b_.post_receive({{reinterpret_cast<std::uintptr_t>(to.data()), 32, mr->lkey}}), 0);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  ASSERT_EQ(a_.post(send, {{reinterpret_cast<std::uintptr_t>(from.data()), 32, mr->lkey}}), 0);
  EXPECT_EQ(a_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(to, from);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, AdviceIsChecked) {
  NEEDS(device().odp_caps.general_caps & IBV_ODP_SUPPORT);
  std::vector<std::uint8_t> bytes(64);
  ibv_mr* mr = ibv_reg_mr(pd_, bytes.data(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr);
  const auto advise = [&](ibv_sge slice, std::uint32_t count = 1) {
    return ibv_advise_mr(pd_, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &slice,
                         count);
  };
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  EXPECT_EQ(advise({address, 64, mr->lkey}), 0);
  EXPECT_NE(advise({address, 65, mr->lkey}), 0);
  EXPECT_NE(advise({address, 64, mr->lkey + 0x1000}), 0);
  EXPECT_EQ(advise({address, 64, mr->lkey}, 0), EINVAL);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Memory, OfTheDeviceIsReachedByCopiesAndByPeers) {
  prepare();
  NEEDS(device().max_dm_size > 0);
  ibv_alloc_dm_attr wanted{.length = 256, .log_align_req = 0, .comp_mask = 0};
  ibv_dm* dm = ibv_alloc_dm(context_, &wanted);
  ASSERT_NE(dm, nullptr) << strerror(errno);
  ibv_mr* mr = ibv_reg_dm_mr(pd_, dm, 64, 128, all_access | IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  EXPECT_EQ(write(8, mr->rkey), IBV_WC_SUCCESS);
  std::uint8_t seen[24] = {};
  ASSERT_EQ(ibv_memcpy_from_dm(seen, dm, 64, sizeof seen), 0);
  EXPECT_EQ(seen[7], 0);
  EXPECT_EQ(seen[8], 7);
  EXPECT_EQ(seen[23], 7);
  EXPECT_NE(ibv_memcpy_to_dm(dm, 240, seen, sizeof seen), 0);
  EXPECT_NE(ibv_free_dm(dm), 0);  // EBUSY: a region exists
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(Memory, OfNobodyTakesAllAndGivesZeros) {
  prepare();
  ibv_mr* null = ibv_alloc_null_mr(pd_);
  NEEDS(null);
  Buffer target(pd_, 64);
  target.bytes.assign(64, 9);
  // Reads from the null region return zeros, between data of another region.
  ASSERT_EQ(a_.post(write_to(target.address(), target.mr->rkey),
                    {source_->slice(0, 8), {0x1000, 16, null->lkey}, source_->slice(8, 8)}),
            0);
  EXPECT_EQ(a_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.bytes[7], 7);
  EXPECT_EQ(target.bytes[8], 0);
  EXPECT_EQ(target.bytes[23], 0);
  EXPECT_EQ(target.bytes[24], 7);
  // Writes to the null region are discarded.
  ibv_send_wr read{};
  read.opcode = IBV_WR_RDMA_READ;
  read.wr.rdma = {target.address(), target.mr->rkey};
  source_->bytes.assign(64, 0);
  ASSERT_EQ(a_.post(read, {{0, 24, null->lkey}, source_->slice(0, 8)}), 0);
  EXPECT_EQ(a_.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(source_->bytes[0], 7);
  EXPECT_EQ(source_->bytes[8], 0);
  EXPECT_EQ(ibv_dereg_mr(null), 0);
}

TEST_F(Memory, OfAParentDomainIsThatOfItsDomain) {
  prepare();
  ibv_td_init_attr none{};
  ibv_td* thread = ibv_alloc_td(context_, &none);
  NEEDS(thread);
  ibv_parent_domain_init_attr wanted{};
  wanted.pd = pd_;
  wanted.td = thread;
  ibv_pd* parent = ibv_alloc_parent_domain(context_, &wanted);
  ASSERT_NE(parent, nullptr) << strerror(errno);
  EXPECT_NE(ibv_dealloc_td(thread), 0);  // in use
  {
    Buffer target(parent, 64);
    EXPECT_EQ(write(target.address(), target.mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(target.bytes[0], 7);
  }
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(thread), 0);
}

}  // namespace
}  // namespace conformance
