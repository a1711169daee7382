// Creates a pair of queue pairs, connects them, passes a message and destroys them, repeatedly;
// then prints by how much the process has grown.
//
// usage: cycles COUNT
#include <dirent.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "interop/endpoint.h"

namespace {

using interop::must;

struct Pair {
  std::array<ibv_qp*, 2> ends{};
};

struct Setting {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_gid gid{};
  std::array<char, 64> bytes{};

  [[nodiscard]] ibv_sge slice(std::size_t offset) {
    return {reinterpret_cast<std::uintptr_t>(bytes.data() + offset), 32, mr->lkey};
  }
};

void prepare(Setting& setting) {
  ibv_device** devices = must(ibv_get_device_list(nullptr), "ibv_get_device_list");
  setting.context = must(ibv_open_device(must(devices[0], "a device")), "ibv_open_device");
  ibv_free_device_list(devices);
  setting.pd = must(ibv_alloc_pd(setting.context), "ibv_alloc_pd");
  setting.cq = must(ibv_create_cq(setting.context, 16, nullptr, nullptr, 0), "ibv_create_cq");
  setting.mr = must(
      ibv_reg_mr(setting.pd, setting.bytes.data(), setting.bytes.size(), IBV_ACCESS_LOCAL_WRITE),
      "ibv_reg_mr");
  must(ibv_query_gid(setting.context, 1, 0, &setting.gid), "ibv_query_gid");
}

ibv_qp* create(Setting& setting) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = setting.cq;
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.qp_type = IBV_QPT_RC;
  return must(ibv_create_qp(setting.pd, &attributes), "ibv_create_qp");
}

void connect(const Setting& setting, ibv_qp* end, std::uint32_t peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  must(ibv_modify_qp(end, &attributes,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
       "INIT");
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = setting.gid;
  must(ibv_modify_qp(end, &attributes,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
       "RTR");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 18;
  attributes.retry_cnt = attributes.rnr_retry = 7;
  must(ibv_modify_qp(end, &attributes,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
       "RTS");
}

void await_success(ibv_cq* cq) {
  ibv_wc completion{};
  while (ibv_poll_cq(cq, 1, &completion) == 0) {
  }
  if (completion.status == IBV_WC_SUCCESS) return;
  std::fprintf(stderr, "a completion: %s\n", ibv_wc_status_str(completion.status));
  std::exit(1);
}

void cycle(Setting& setting) {
  const Pair pair{{create(setting), create(setting)}};
  connect(setting, pair.ends[0], pair.ends[1]->qp_num);
  connect(setting, pair.ends[1], pair.ends[0]->qp_num);
  ibv_sge to = setting.slice(32);
  ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = &to, .num_sge = 1};
  ibv_recv_wr* bad_receive = nullptr;
  must(ibv_post_recv(pair.ends[1], &receive, &bad_receive), "ibv_post_recv");
  ibv_sge from = setting.slice(0);
  ibv_send_wr send{};
  send.sg_list = &from;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad_send = nullptr;
  must(ibv_post_send(pair.ends[0], &send, &bad_send), "ibv_post_send");
  for (int i = 0; i < 2; ++i) await_success(setting.cq);
  for (ibv_qp* end : pair.ends) must(ibv_destroy_qp(end), "ibv_destroy_qp");
}

int entries_of(const char* directory) {
  DIR* open = must(opendir(directory), directory);
  int count = 0;
  while (readdir(open)) ++count;
  closedir(open);
  return count;
}

// The proportional set size: memory that the device has mapped twice counts once.
long resident_kb() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  long kb = 0;
  while (rollup >> word && word != "Pss:") {
  }
  rollup >> kb;
  return kb;
}

// Sockets stay open for a moment after their queue pair is destroyed.
void await_descriptors(int wanted) {
  const std::int64_t end = interop::now_ns() + 5'000'000'000;
  while (entries_of("/proc/self/fd") > wanted && interop::now_ns() < end) usleep(1000);
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 2 ? std::atoi(argv[1]) : 0;
  if (count < 1) {
    std::fprintf(stderr, "usage: cycles COUNT\n");
    return 2;
  }
  Setting setting;
  prepare(setting);
  for (int i = 0; i < count / 10 + 1; ++i) cycle(setting);  // one-time growth happens here
  const int threads = entries_of("/proc/self/task");
  const long before_kb = resident_kb();
  const int descriptors = [] {
    await_descriptors(16);
    return entries_of("/proc/self/fd");
  }();
  for (int i = 0; i < count; ++i) cycle(setting);
  await_descriptors(descriptors);
  std::printf("cycles=%d fds=%d threads=%d grown_kb=%ld\n", count,
              entries_of("/proc/self/fd") - descriptors, entries_of("/proc/self/task") - threads,
              resident_kb() - before_kb);
  return 0;
}
