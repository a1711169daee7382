// A program for hostile peers that connect by number, and for hostile datagrams. It does what it is
// told on standard input, a line at a time, and ends with it:
//
//   pair QPN RECEIVES   makes a queue pair for the peer's QPN and prints its own number and region
//   extend QPN RECEIVES the same for the receiving end of an extended connection (XRC), with a
//   shared
//                       receive queue, whose number it prints first
//   drop                destroys all these queue pairs
//   look                prints what it has
//
// The PSNs of both ends are 1 and 2. The queue pair for datagrams exists from the start.

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "interop/hostile_memory.h"

namespace {

using interop::HostileMemory;
using interop::must;

constexpr std::uint32_t kOurPsn = 1;
constexpr std::uint32_t kPeersPsn = 2;
constexpr std::uint32_t kQkey = 0x11111111;
constexpr std::uint32_t kDatagramBytes = 40 + 4096;  // the largest, behind a routing header
constexpr int kDatagramReceives = 64;

class Target {
 public:
  explicit Target(ibv_context* context)
      : context_(context),
        domain_(must(ibv_alloc_pd(context), "ibv_alloc_pd")),
        events_(must(ibv_create_comp_channel(context), "ibv_create_comp_channel")),
        queue_(must(ibv_create_cq(context, 65536, nullptr, events_, 0), "ibv_create_cq")),
        memory_(domain_),
        datagrams_(make(IBV_QPT_UD, kDatagramReceives)) {
    must(ibv_req_notify_cq(queue_, 0), "ibv_req_notify_cq");
    ibv_qp_attr attributes = initial();
    attributes.qkey = kQkey;
    change(datagrams_, attributes, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    change(datagrams_, attributes, IBV_QPS_RTR, 0);
    for (int i = 0; i < kDatagramReceives; ++i) post_for_datagram();
    std::printf("datagrams %u %u\n", datagrams_->qp_num, kQkey);
  }

  void serve() {
    std::array<pollfd, 3> waited{pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{events_->fd, POLLIN, 0},
                                 pollfd{context_->async_fd, POLLIN, 0}};
    while (true) {
      std::fflush(stdout);
      if (::poll(waited.data(), waited.size(), -1) < 0) continue;
      if (waited[1].revents != 0) take_completions();
      if (waited[2].revents != 0) take_device_event();
      if (waited[0].revents != 0 && !obey()) return;
    }
  }

 private:
  static ibv_qp_attr initial() {
    ibv_qp_attr attributes{};
    attributes.port_num = 1;
    attributes.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    return attributes;
  }

  ibv_qp* make(ibv_qp_type type, std::uint32_t receives) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue_;
    wanted.qp_type = type;
    wanted.cap = {4, receives, 1, 1, 0};
    return must(ibv_create_qp(domain_, &wanted), "ibv_create_qp");
  }

  static void change(ibv_qp* queue_pair, ibv_qp_attr attributes, ibv_qp_state state, int mask) {
    attributes.qp_state = state;
    must(ibv_modify_qp(queue_pair, &attributes, IBV_QP_STATE | mask), "ibv_modify_qp");
  }

  // A shared receive queue of extended connections (XRC).
  ibv_srq* make_shared_queue() {
    if (extended_ == nullptr) {
      ibv_xrcd_init_attr wanted{};
      wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
      wanted.fd = -1;
      wanted.oflags = O_CREAT;
      extended_ = must(ibv_open_xrcd(context_, &wanted), "ibv_open_xrcd");
    }
    ibv_srq_init_attr_ex wanted{};
    wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                       IBV_SRQ_INIT_ATTR_PD;
    wanted.srq_type = IBV_SRQT_XRC;
    wanted.attr = {16, 1, 0};
    wanted.pd = domain_;
    wanted.xrcd = extended_;
    wanted.cq = queue_;
    return must(ibv_create_srq_ex(context_, &wanted), "ibv_create_srq_ex");
  }

  // The receiving end of an extended connection.
  ibv_qp* make_extended() {
    ibv_qp_init_attr_ex wanted{};
    wanted.qp_type = IBV_QPT_XRC_RECV;
    wanted.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    wanted.xrcd = extended_;
    return must(ibv_create_qp_ex(context_, &wanted), "ibv_create_qp_ex");
  }

  void extend(std::uint32_t peers_number, int receives) {
    ibv_srq* shared = make_shared_queue();
    shared_.push_back(shared);
    std::uint32_t number = 0;
    must(ibv_get_srq_num(shared, &number), "ibv_get_srq_num");
    for (int i = 0; i < receives; ++i) memory_.post_receive(ibv_post_srq_recv, shared, 256);
    ibv_qp* made = make_extended();
    to_init(made);
    to_rtr(made, peers_number);
    pairs_.push_back(made);
    std::printf("queue %u ", number);
    print_pair(*made);
  }

  void pair(std::uint32_t peers_number, int receives) {
    ibv_qp* made = make(IBV_QPT_RC, 16);
    to_init(made);
    for (int i = 0; i < receives; ++i) memory_.post_receive(ibv_post_recv, made, 256);
    to_rtr(made, peers_number);
    ibv_qp_attr attributes = initial();
    attributes.sq_psn = kOurPsn;
    attributes.timeout = 14;
    attributes.retry_cnt = attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 4;
    change(made, attributes, IBV_QPS_RTS,
           IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_MAX_QP_RD_ATOMIC);
    pairs_.push_back(made);
    print_pair(*made);
  }

  static void to_init(ibv_qp* made) {
    change(made, initial(), IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }

  static void to_rtr(ibv_qp* made, std::uint32_t peers_number) {
    ibv_qp_attr attributes = initial();
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peers_number;
    attributes.rq_psn = kPeersPsn;
    attributes.max_dest_rd_atomic = 4;
    attributes.min_rnr_timer = 1;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid.raw[10] = attributes.ah_attr.grh.dgid.raw[11] = 0xFF;
    const std::uint32_t loopback = htonl(INADDR_LOOPBACK);
    std::memcpy(attributes.ah_attr.grh.dgid.raw + 12, &loopback, sizeof loopback);
    change(made, attributes, IBV_QPS_RTR,
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }

  void print_pair(const ibv_qp& made) const {
    const auto writable = HostileMemory::region(memory_.writable());
    const auto readable = HostileMemory::region(memory_.readable());
    std::printf("paired %u regions %lu %u %u %lu %u %u\n", made.qp_num, writable.address,
                writable.rkey, writable.bytes, readable.address, readable.rkey, readable.bytes);
  }

  void drop() {
    for (ibv_qp* made : pairs_) must(ibv_destroy_qp(made), "ibv_destroy_qp");
    pairs_.clear();
    for (ibv_srq* shared : shared_) must(ibv_destroy_srq(shared), "ibv_destroy_srq");
    shared_.clear();
    std::printf("dropped\n");
  }

  void look() const {
    std::printf("received %ld descriptors %d threads %d memory %s\n", received_,
                interop::entries("/proc/self/fd") - 1, interop::entries("/proc/self/task"),
                memory_.state());
  }

  // Returns false at the end of standard input.
  bool obey() {
    std::array<char, 256> came;
    const auto got = ::read(STDIN_FILENO, came.data(), came.size());
    if (got <= 0) return false;
    input_.append(came.data(), static_cast<std::size_t>(got));
    for (auto end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
      const std::string line = input_.substr(0, end);
      input_.erase(0, end + 1);
      unsigned number = 0;
      int receives = 0;
      if (std::sscanf(line.c_str(), "pair %u %d", &number, &receives) == 2) pair(number, receives);
      if (std::sscanf(line.c_str(), "extend %u %d", &number, &receives) == 2) {
        extend(number, receives);
      }
      if (line == "drop") drop();
      if (line == "look") look();
    }
    return true;
  }

  void post_for_datagram() const {
    memory_.post_receive(ibv_post_recv, datagrams_, kDatagramBytes);
  }

  void take_completions() {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(events_, &queue, &context) != 0) return;
    ibv_ack_cq_events(queue, 1);
    must(ibv_req_notify_cq(queue, 0), "ibv_req_notify_cq");
    std::array<ibv_wc, 64> found;
    for (int count = 0; (count = ibv_poll_cq(queue, found.size(), found.data())) > 0;) {
      for (int i = 0; i < count; ++i) {
        if (found[i].qp_num != datagrams_->qp_num) continue;
        if (found[i].status != IBV_WC_SUCCESS) interop::fail("a receive of a datagram");
        ++received_;
        post_for_datagram();
      }
    }
  }

  void take_device_event() const {
    ibv_async_event event;
    if (ibv_get_async_event(context_, &event) == 0) ibv_ack_async_event(&event);
  }

  ibv_context* context_;
  ibv_pd* domain_;
  ibv_comp_channel* events_;
  ibv_cq* queue_;
  HostileMemory memory_;
  ibv_qp* datagrams_;
  std::vector<ibv_qp*> pairs_;
  std::vector<ibv_srq*> shared_;
  ibv_xrcd* extended_ = nullptr;
  std::string input_;
  long received_ = 0;  // datagrams
};

}  // namespace

int main() {
  ibv_device** devices = must(ibv_get_device_list(nullptr), "ibv_get_device_list");
  Target target(must(ibv_open_device(must(devices[0], "a device")), "ibv_open_device"));
  target.serve();
  return 0;
}
