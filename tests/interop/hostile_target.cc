// A server for hostile peers: it accepts every connection, grants each of them the same memory, and
// takes Sends into it. Around the granted pages are others that no peer may change.
//
//   hostile_target HOST PORT    for each line of standard input it prints what it has; ends with it

#include <dirent.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <set>

#include "interop/endpoint.h"

namespace {

using interop::must;
using interop::Region;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 7;
constexpr unsigned char kCanary = 0xC5;
constexpr int kReceives = 4;

// Pages: canary, read and write, canary, read only, canary, not granted, canary.
enum Page : std::size_t { writable_page = 1, readable_page = 3, private_page = 5 };

int entries(const char* directory) {
  DIR* open = must(::opendir(directory), directory);
  int count = 0;
  while (const dirent* entry = ::readdir(open)) count += entry->d_name[0] != '.';
  ::closedir(open);
  return count;
}

class Target {
 public:
  Target(const char* host, const char* port)
      : channel_(must(rdma_create_event_channel(), "rdma_create_event_channel")),
        listener_(interop::listen(channel_, host, port)),
        domain_(must(ibv_alloc_pd(listener_->verbs), "ibv_alloc_pd")),
        completions_(must(ibv_create_comp_channel(listener_->verbs), "ibv_create_comp_channel")),
        queue_(must(ibv_create_cq(listener_->verbs, 65536, nullptr, completions_, 0),
                    "ibv_create_cq")),
        memory_(static_cast<unsigned char*>(::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::memset(memory_, kCanary, kPages * kPage);
    constexpr int write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    writable_ = grant(writable_page, write | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    readable_ = grant(readable_page, IBV_ACCESS_REMOTE_READ);
    must(ibv_req_notify_cq(queue_, 0), "ibv_req_notify_cq");
  }

  void serve() {
    std::array<pollfd, 3> waited{pollfd{channel_->fd, POLLIN, 0},
                                 pollfd{completions_->fd, POLLIN, 0},
                                 pollfd{STDIN_FILENO, POLLIN, 0}};
    while (true) {
      if (::poll(waited.data(), waited.size(), -1) < 0) continue;
      if (waited[1].revents != 0) take_completions();
      if (waited[0].revents != 0) take_event();
      if (waited[2].revents == 0) continue;
      char line[64];
      if (::read(STDIN_FILENO, line, sizeof line) <= 0) return;
      report();
    }
  }

 private:
  ibv_mr* grant(Page page, int access) {
    return must(ibv_reg_mr(domain_, memory_ + page * kPage, kPage, access), "ibv_reg_mr");
  }

  void take_completions() {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(completions_, &queue, &context) != 0) return;
    ibv_ack_cq_events(queue, 1);
    must(ibv_req_notify_cq(queue, 0), "ibv_req_notify_cq");
    std::array<ibv_wc, 64> found;
    while (ibv_poll_cq(queue, found.size(), found.data()) > 0) {
    }
  }

  void take_event() {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) return;
    rdma_cm_id* id = event->id;
    const rdma_cm_event_type type = event->event;
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) return accept(id);
    if (type == RDMA_CM_EVENT_ESTABLISHED || id == listener_) return;
    rdma_disconnect(id);
    end(id);
  }

  void accept(rdma_cm_id* id) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = queue_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {4, kReceives, 1, 1, 0};
    ++connections_;
    if (rdma_create_qp(id, domain_, &attributes) != 0) {
      rdma_reject(id, nullptr, 0);
      rdma_destroy_id(id);
      return;
    }
    open_.insert(id);
    for (int i = 0; i < kReceives; ++i) {
      ibv_sge piece{reinterpret_cast<std::uint64_t>(memory_ + writable_page * kPage), 256,
                    writable_->lkey};
      ibv_recv_wr request{};
      request.sg_list = &piece;
      request.num_sge = 1;
      ibv_recv_wr* bad = nullptr;
      ibv_post_recv(id->qp, &request, &bad);
    }
    std::array<Region, 2> granted{region(*writable_), region(*readable_)};
    rdma_conn_param parameters{};
    parameters.private_data = granted.data();
    parameters.private_data_len = sizeof granted;
    parameters.responder_resources = parameters.initiator_depth = 4;
    if (rdma_accept(id, &parameters) != 0) end(id);
  }

  static Region region(const ibv_mr& mr) {
    return {reinterpret_cast<std::uint64_t>(mr.addr), mr.rkey,
            static_cast<std::uint32_t>(mr.length)};
  }

  void end(rdma_cm_id* id) {
    if (open_.erase(id) == 0) return;
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }

  void report() const {
    bool intact = true;
    for (std::size_t i = 0; i < kPages * kPage; ++i) {
      intact &= i / kPage == writable_page || memory_[i] == kCanary;
    }
    std::printf("connections %ld open %zu descriptors %d threads %d memory %s\n", connections_,
                open_.size(), entries("/proc/self/fd") - 1, entries("/proc/self/task"),
                intact ? "intact" : "changed");
    std::fflush(stdout);
  }

  rdma_event_channel* channel_;
  rdma_cm_id* listener_;
  ibv_pd* domain_;
  ibv_comp_channel* completions_;
  ibv_cq* queue_;
  unsigned char* memory_;
  ibv_mr* writable_ = nullptr;
  ibv_mr* readable_ = nullptr;
  std::set<rdma_cm_id*> open_;
  long connections_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::printf("usage: hostile_target HOST PORT\n");
    return 2;
  }
  Target target(argv[1], argv[2]);
  target.serve();
  return 0;
}
