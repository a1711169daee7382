#include "conformance/pair.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

namespace conformance {
namespace {

std::string chosen_device() {
  const char* name = std::getenv("WEFT_TEST_DEVICE");
  return name ? name : "";
}

ibv_context* open_device() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (!devices) return nullptr;  // no support in the kernel
  ibv_context* opened = nullptr;
  const std::string wanted = chosen_device();
  for (int i = 0; i < count && !opened; ++i) {
    if (wanted.empty() || wanted == ibv_get_device_name(devices[i])) {
      opened = ibv_open_device(devices[i]);
    }
  }
  ibv_free_device_list(devices);
  return opened;
}

// True if the library is the drop-in, which always has a device.
bool is_drop_in() {
  return dlsym(RTLD_DEFAULT, "weft_provider_table") != nullptr;
}

}  // namespace

bool embedded() {
  return chosen_device().empty() ? is_drop_in() : chosen_device() == "weft0";
}

Buffer::Buffer(ibv_pd* pd, std::size_t size, unsigned access)
    : bytes(size), mr(ibv_reg_mr(pd, bytes.data(), size, static_cast<int>(access))) {
  EXPECT_NE(mr, nullptr) << strerror(errno);
}

Buffer::~Buffer() {
  if (mr) {
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
}

int End::post(ibv_send_wr request, std::vector<ibv_sge> slices) {
  request.send_flags |= IBV_SEND_SIGNALED;
  request.sg_list = slices.data();
  request.num_sge = static_cast<int>(slices.size());
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &request, &bad);
}

int End::post_receive(std::vector<ibv_sge> slices) {
  ibv_recv_wr request{};
  request.sg_list = slices.data();
  request.num_sge = static_cast<int>(slices.size());
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &request, &bad);
}

ibv_wc End::await() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  ibv_wc completion{};
  while (ibv_poll_cq(cq, 1, &completion) == 0) {
    if (std::chrono::steady_clock::now() < end) continue;
    ADD_FAILURE() << "nothing completed";
    completion.status = IBV_WC_GENERAL_ERR;
    break;
  }
  return completion;
}

bool End::quiet() {
  ibv_wc completion{};
  return ibv_poll_cq(cq, 1, &completion) == 0;
}

void Pair::SetUp() {
  context_ = open_device();
  if (!context_ && chosen_device().empty() && !is_drop_in()) {
    GTEST_SKIP() << "this machine has no RDMA device";
  }
  ASSERT_NE(context_, nullptr) << "no device " << chosen_device();
  if (!embedded() && context_->device->transport_type == IBV_TRANSPORT_IWARP) {
    GTEST_SKIP() << "iWARP devices connect queue pairs by rdma_cm only";
  }
  pd_ = ibv_alloc_pd(context_);
  ASSERT_NE(pd_, nullptr);
  const char* index = std::getenv("WEFT_TEST_GID");
  gid_index_ = index ? std::atoi(index) : 0;
}

void Pair::TearDown() {
  for (const End& end : ends_) EXPECT_EQ(ibv_destroy_qp(end.qp), 0);
  for (const End& end : {a_, b_}) {
    if (end.cq) {
      EXPECT_EQ(ibv_destroy_cq(end.cq), 0);
    }
  }
  if (pd_) {
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0) << "something of the domain was left";
  }
  if (context_) {
    EXPECT_EQ(ibv_close_device(context_), 0);
  }
}

bool Pair::make(End& end, std::uint64_t operations, ibv_qp_type type) {
  if (!end.cq) end.cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
  if (!end.cq) return false;
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = attributes.recv_cq = end.cq;
  attributes.cap = {.max_send_wr = 16,
                    .max_recv_wr = 16,
                    .max_send_sge = 4,
                    .max_recv_sge = 4,
                    .max_inline_data = 64};
  attributes.qp_type = type;
  attributes.pd = pd_;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
  if (operations != 0) {
    attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = operations;
  }
  end.qp = ibv_create_qp_ex(context_, &attributes);
  if (end.qp) ends_.push_back(end);
  return end.qp != nullptr;
}

bool Pair::to_rts(End& end, const End& peer, ibv_qp_type type) {
  const bool reliable = type == IBV_QPT_RC;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = all_access;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (ibv_modify_qp(end.qp, &attributes, mask) != 0) return false;
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer.qp->qp_num;
  attributes.max_dest_rd_atomic = 4;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.hop_limit = 64;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
  if (ibv_query_gid(context_, 1, gid_index_, &attributes.ah_attr.grh.dgid) != 0) return false;
  mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (reliable) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (ibv_modify_qp(end.qp, &attributes, mask) != 0) return false;
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 4;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (reliable) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  return ibv_modify_qp(end.qp, &attributes, mask) == 0;
}

bool Pair::connect(std::uint64_t operations, ibv_qp_type type) {
  return connect(a_, b_, operations, type);
}

bool Pair::connect(End& left, End& right, std::uint64_t operations, ibv_qp_type type) {
  return make(left, operations, type) && make(right, operations, type) &&
         to_rts(left, right, type) && to_rts(right, left, type);
}

ibv_send_wr Pair::write_to(std::uint64_t address, std::uint32_t rkey) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma = {address, rkey};
  return request;
}

}  // namespace conformance
