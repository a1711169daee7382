// Objects of a context that are imported by their handles: ibv_import_device(3).
#include <gtest/gtest.h>

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>

#include "provider/embedded.h"

namespace weft::provider {
namespace {

constexpr std::size_t page = 4096;
constexpr int all_rights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

ibv_context* open_first() {
  int count = 0;
  ibv_device** devices = embedded().get_device_list(&count);
  ibv_context* const context = count > 0 ? embedded().open_device(devices[0]) : nullptr;
  embedded().free_device_list(devices);
  return context;
}

class Import : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(context_, nullptr);
    memory_ = map(MAP_SHARED);
    pd_ = table_.alloc_pd(context_);
    mr_ = table_.reg_mr(pd_, memory_, page, all_rights);
    ASSERT_NE(mr_, nullptr);
  }
  void TearDown() override {
    if (mr_) {
      EXPECT_EQ(table_.dereg_mr(mr_), 0);
    }
    EXPECT_EQ(table_.dealloc_pd(pd_), 0);
    EXPECT_EQ(table_.close_device(context_), 0);
    munmap(memory_, page);
  }

  static char* map(int kind) {
    return static_cast<char*>(
        mmap(nullptr, page, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0));
  }

  // Runs it in a child of fork(2), which has the context's descriptor, and expects it to succeed.
  static void in_child(const std::function<bool()>& work) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(work() ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }

  const Table& table_ = embedded();
  ibv_context* context_ = open_first();
  char* memory_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr* mr_ = nullptr;
};

// One queue pair with its completion queue.
struct Queues {
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;

  void make(ibv_pd* pd) {
    cq = embedded().create_cq(pd->context, 4, nullptr, nullptr, 0);
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    qp = embedded().create_qp(pd, &attributes);
  }

  [[nodiscard]] bool connect_to(const Queues& peer) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = all_rights;
    const int begin = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (embedded().modify_qp(qp, &attributes, begin) != 0) return false;
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer.qp->qp_num;
    attributes.max_dest_rd_atomic = 1;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    if (embedded().query_gid(qp->context, 1, 0, &attributes.ah_attr.grh.dgid) != 0) return false;
    const int receive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (embedded().modify_qp(qp, &attributes, receive) != 0) return false;
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.max_rd_atomic = 1;
    const int send = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return embedded().modify_qp(qp, &attributes, send) == 0;
  }

  // Returns the status of the Write.
  [[nodiscard]] ibv_wc_status write(ibv_mr* from, std::uint64_t to, std::uint32_t rkey) const {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(from->addr), static_cast<std::uint32_t>(page),
                from->lkey};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = to;
    request.wr.rdma.rkey = rkey;
    ibv_send_wr* bad = nullptr;
    ibv_wc completion{};
    if (ibv_post_send(qp, &request, &bad) != 0) return IBV_WC_GENERAL_ERR;
    while (ibv_poll_cq(cq, 1, &completion) == 0) {
    }
    return completion.status;
  }
};

TEST_F(Import, WithinAProcessGivesTheSameObjectsOnceMore) {
  ibv_context* const again = table_.import_device(dup(context_->cmd_fd));
  ASSERT_EQ(again, context_);
  EXPECT_EQ(table_.import_pd(again, pd_->handle), pd_);
  EXPECT_EQ(table_.import_mr(pd_, mr_->handle), mr_);
  table_.unimport_mr(mr_);
  table_.unimport_pd(pd_);
  EXPECT_EQ(table_.close_device(again), 0);
  // All of it is there still.
  ibv_pd* const other = table_.alloc_pd(context_);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(table_.import_pd(context_, other->handle), other);
  EXPECT_EQ(table_.dealloc_pd(other), 0);
}

TEST_F(Import, DeviceMemoryIsSharedWithinAProcess) {
  ibv_alloc_dm_attr attributes{};
  attributes.length = 64;
  ibv_dm* const dm = ibv_alloc_dm(context_, &attributes);
  ASSERT_NE(dm, nullptr);
  ibv_context* const again = table_.import_device(dup(context_->cmd_fd));
  EXPECT_EQ(table_.import_dm(again, dm->handle), dm);
  table_.unimport_dm(dm);
  errno = 0;
  EXPECT_EQ(table_.import_dm(again, dm->handle + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(table_.close_device(again), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(Import, UnknownHandlesAreRefused) {
  errno = 0;
  EXPECT_EQ(table_.import_pd(context_, pd_->handle + 1000), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(table_.import_mr(pd_, mr_->handle ^ 0x100), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_pd* const other = table_.alloc_pd(context_);
  errno = 0;
  EXPECT_EQ(table_.import_mr(other, mr_->handle), nullptr);
  EXPECT_EQ(errno, EINVAL);
  const std::uint32_t handle = other->handle;
  EXPECT_EQ(table_.dealloc_pd(other), 0);
  EXPECT_EQ(table_.import_pd(context_, handle), nullptr);
}

TEST_F(Import, OtherDescriptorsAreRefused) {
  errno = 0;
  EXPECT_EQ(table_.import_device(-1), nullptr);
  EXPECT_EQ(errno, EBADF);
  const int event = eventfd(0, 0);
  errno = 0;
  EXPECT_EQ(table_.import_device(event), nullptr);
  EXPECT_EQ(errno, EINVAL);
  const int file = memfd_create("other", 0);
  errno = 0;
  EXPECT_EQ(table_.import_device(file), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // They stay the program's.
  EXPECT_EQ(close(event), 0);
  EXPECT_EQ(close(file), 0);
}

TEST_F(Import, AnotherProcessGrantsItsPeersTheMemoryByTheSameKey) {
  in_child([this] {
    ibv_context* const context = table_.import_device(dup(context_->cmd_fd));
    ibv_pd* const pd = context ? table_.import_pd(context, pd_->handle) : nullptr;
    ibv_mr* const mr = pd ? table_.import_mr(pd, mr_->handle) : nullptr;
    if (!mr || mr->rkey != mr_->rkey || mr->lkey != mr_->lkey || mr->length != page) return false;
    Queues target;
    target.make(pd);
    ibv_context* const plain = open_first();
    ibv_pd* const domain = table_.alloc_pd(plain);
    std::array<char, page> bytes;
    bytes.fill('x');
    ibv_mr* const source = table_.reg_mr(domain, bytes.data(), page, 0);
    Queues initiator;
    initiator.make(domain);
    return target.connect_to(initiator) && initiator.connect_to(target) &&
           initiator.write(source, reinterpret_cast<std::uintptr_t>(memory_), mr->rkey) ==
               IBV_WC_SUCCESS;
  });
  EXPECT_EQ(std::count(memory_, memory_ + page, 'x'), static_cast<std::ptrdiff_t>(page));
}

TEST_F(Import, AnotherProcessGivesItBackWithoutTheOwner) {
  in_child([this] {
    ibv_context* const context = table_.import_device(dup(context_->cmd_fd));
    ibv_pd* const pd = table_.import_pd(context, pd_->handle);
    ibv_mr* const mr = table_.import_mr(pd, mr_->handle);
    errno = 0;
    if (!mr || table_.import_mr(pd, mr_->handle) || errno != EEXIST) return false;
    table_.unimport_mr(mr);
    ibv_mr* const again = table_.import_mr(pd, mr_->handle);
    if (!again || table_.dereg_mr(again) != 0) return false;
    table_.unimport_pd(pd);
    return table_.close_device(context) == 0;
  });
  EXPECT_EQ(table_.import_mr(pd_, mr_->handle), mr_);
}

TEST_F(Import, AnotherProcessNeedsTheMemoryAtTheSameAddress) {
  char* const own = map(MAP_PRIVATE);
  ibv_mr* const of_this_process = table_.reg_mr(pd_, own, page, all_rights);
  in_child([&] {
    ibv_context* const context = table_.import_device(dup(context_->cmd_fd));
    ibv_pd* const pd = table_.import_pd(context, pd_->handle);
    errno = 0;
    if (!pd || table_.import_mr(pd, of_this_process->handle) || errno != EOPNOTSUPP) return false;
    // Other memory at the address of the shared page.
    mmap(memory_, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = 0;
    if (table_.import_mr(pd, mr_->handle) || errno != EOPNOTSUPP) return false;
    munmap(memory_, page);
    errno = 0;
    return !table_.import_mr(pd, mr_->handle) && errno == EOPNOTSUPP;
  });
  EXPECT_EQ(table_.dereg_mr(of_this_process), 0);
  munmap(own, page);
}

TEST_F(Import, WhatTheOwnerHasGivenUpIsGone) {
  const std::uint32_t handle = mr_->handle;
  EXPECT_EQ(table_.dereg_mr(mr_), 0);
  mr_ = nullptr;
  in_child([this, handle] {
    ibv_context* const context = table_.import_device(dup(context_->cmd_fd));
    ibv_pd* const pd = table_.import_pd(context, pd_->handle);
    errno = 0;
    return pd && !table_.import_mr(pd, handle) && errno == EINVAL;
  });
  ibv_context* const closed = open_first();
  const int file = dup(closed->cmd_fd);
  EXPECT_EQ(table_.close_device(closed), 0);
  errno = 0;
  EXPECT_EQ(table_.import_device(file), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  close(file);
}

}  // namespace
}  // namespace weft::provider
