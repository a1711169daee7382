// What a program sees when its peer is killed: each situation of docs/killed-peers.md. The program
// forks; the child is the peer, and is killed once the situation is there. Then the program prints
// one line, "outcome: " and its completions and events in their order.
//
//   killed_peer SITUATION [EARLIER]
//
// EARLIER: the number of connections between the two processes that come before. Within one host,
// the third one is the first that is made without TCP.
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "interop/endpoint.h"

namespace {

using interop::Endpoint;
using interop::fail;
using interop::must;
using interop::Region;

constexpr const char* kHost = "127.0.0.1";
constexpr int kLimitMs = 20'000;  // of a wait; the longest is that for a timeout of 2 s
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint32_t kQueueKey = 0x1234;

// What has been seen so far, for the line that is printed.
std::string seen;

void note(const std::string& what) {
  seen += (seen.empty() ? "" : ", ") + what;
}

// --- The two processes ---------------------------------------------------------------------------

int from_other = -1;
int to_other = -1;
pid_t child = 0;
int earlier = 0;
std::set<rdma_cm_id*> earlier_ids;  // whose events do not count

template <typename T>
void tell(const T& value) {
  if (::write(to_other, &value, sizeof value) != sizeof value) fail("write to the other process");
}

template <typename T>
T hear() {
  T value{};
  std::size_t done = 0;
  while (done < sizeof value) {
    const ssize_t got =
        ::read(from_other, reinterpret_cast<char*>(&value) + done, sizeof value - done);
    if (got <= 0) fail("read from the other process");
    done += static_cast<std::size_t>(got);
  }
  return value;
}

// Returns true in the child.
bool fork_peer() {
  int down[2];
  int up[2];
  must(::pipe(down), "pipe");
  must(::pipe(up), "pipe");
  child = ::fork();
  if (child < 0) fail("fork");
  from_other = child == 0 ? down[0] : up[0];
  to_other = child == 0 ? up[1] : down[1];
  ::close(child == 0 ? down[1] : up[1]);
  ::close(child == 0 ? up[0] : down[0]);
  return child == 0;
}

// The child ends with its parent, whose end closes the pipe.
[[noreturn]] void wait_to_be_killed() {
  char byte = 0;
  while (::read(from_other, &byte, 1) > 0) {
  }
  std::_Exit(0);
}

void stop_child() {
  must(::kill(child, SIGSTOP), "kill");
  int status = 0;
  if (::waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) fail("waitpid");
}

void kill_child() {
  must(::kill(child, SIGKILL), "kill");
  if (::waitpid(child, nullptr, 0) != child) fail("waitpid");
}

// --- Completions and events ----------------------------------------------------------------------

// wr_id of the requests.
enum Request : std::uint64_t { first_send = 1, receive, atomic, write, send };

std::string name_of(std::uint64_t request) {
  constexpr std::array names{"", "send", "receive", "atomic", "write", "send"};
  return names.at(request);
}

std::string status_of(const ibv_wc& completion) {
  static const std::map<int, const char*> names{{IBV_WC_SUCCESS, "SUCCESS"},
                                                {IBV_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR"},
                                                {IBV_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR"}};
  const auto found = names.find(completion.status);
  std::string text = found == names.end() ? ibv_wc_status_str(completion.status) : found->second;
  if (completion.vendor_err == ECONNRESET) text += " (ECONNRESET)";
  if (completion.vendor_err == ETIMEDOUT) text += " (ETIMEDOUT)";
  return text;
}

ibv_wc next_completion(ibv_cq* cq) {
  ibv_wc found{};
  const std::int64_t end = interop::now_ns() + kLimitMs * 1'000'000LL;
  while (ibv_poll_cq(cq, 1, &found) == 0) {
    if (interop::now_ns() > end) {
      std::printf("failed: no completion, after: %s\n", seen.c_str());
      std::_Exit(1);
    }
    ::usleep(500);
  }
  return found;
}

void note_completions(ibv_cq* cq, int count) {
  for (int i = 0; i < count; ++i) {
    const ibv_wc found = next_completion(cq);
    note(name_of(found.wr_id) + ' ' + status_of(found));
  }
}

void need_success(ibv_cq* cq) {
  const ibv_wc found = next_completion(cq);
  if (found.status == IBV_WC_SUCCESS) return;
  std::printf("failed: %s before the kill\n", ibv_wc_status_str(found.status));
  std::_Exit(1);
}

void note_event(rdma_event_channel* channel) {
  pollfd readable{channel->fd, POLLIN, 0};
  if (::poll(&readable, 1, kLimitMs) != 1) {
    std::printf("failed: no event, after: %s\n", seen.c_str());
    std::_Exit(1);
  }
  rdma_cm_event* event = nullptr;
  must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  if (earlier_ids.contains(event->id)) {
    rdma_ack_cm_event(event);
    return note_event(channel);
  }
  std::string text = rdma_event_str(event->event) + std::strlen("RDMA_CM_EVENT_");
  if (event->status == -ECONNREFUSED) text += " (ECONNREFUSED)";
  if (event->status == -ECONNRESET) text += " (ECONNRESET)";
  note(text);
  rdma_ack_cm_event(event);
}

void note_state(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  must(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &initial), "ibv_query_qp");
  note(attributes.qp_state == IBV_QPS_ERR   ? "state ERR"
       : attributes.qp_state == IBV_QPS_RTS ? "state RTS"
                                            : "another state");
}

int post(ibv_qp* qp, Request request, ibv_wr_opcode opcode, const ibv_mr& local,
         const Region& remote, ibv_ah* address = nullptr, std::uint32_t number = 0) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(local.addr), 8, local.lkey};
  ibv_send_wr work{};
  work.wr_id = request;
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = opcode;
  work.send_flags = IBV_SEND_SIGNALED;
  if (address != nullptr) {
    work.wr.ud = {address, number, kQueueKey};
  } else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    work.wr.atomic = {remote.address, 1, 0, remote.rkey};
  } else {
    work.wr.rdma = {remote.address, remote.rkey};
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &work, &bad);
}

void post_receive(ibv_qp* qp, const ibv_mr& memory) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory.addr), 64, memory.lkey};
  ibv_recv_wr work{};
  work.wr_id = receive;
  work.sg_list = &piece;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  must(ibv_post_recv(qp, &work, &bad), "ibv_post_recv");
}

// --- Queue pairs that are connected by number ----------------------------------------------------

struct Hello {
  std::uint32_t number = 0;
  Region region;
};

class Numbered {
 public:
  explicit Numbered(ibv_qp_type type) : type_(type) {
    ibv_device** devices = must(ibv_get_device_list(nullptr), "ibv_get_device_list");
    context_ = must(ibv_open_device(must(devices[0], "a device")), "ibv_open_device");
    ibv_free_device_list(devices);
    pd_ = must(ibv_alloc_pd(context_), "ibv_alloc_pd");
    cq = must(ibv_create_cq(context_, 16, nullptr, nullptr, 0), "ibv_create_cq");
    memory = must(ibv_reg_mr(pd_, bytes_.data(), bytes_.size(), kAccess), "ibv_reg_mr");
    must(ibv_query_gid(context_, 1, 0, &gid_), "ibv_query_gid");
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.cap = {8, 8, 1, 1, 0};
    wanted.qp_type = type;
    qp = must(ibv_create_qp(pd_, &wanted), "ibv_create_qp");
    tell(Hello{qp->qp_num,
               {reinterpret_cast<std::uintptr_t>(bytes_.data()), memory->rkey,
                static_cast<std::uint32_t>(bytes_.size())}});
    peer = hear<Hello>();
    connect();
  }

  [[nodiscard]] ibv_ah* address() const {
    ibv_ah_attr attributes = vector();
    return must(ibv_create_ah(pd_, &attributes), "ibv_create_ah");
  }

  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* memory = nullptr;
  Hello peer;

 private:
  [[nodiscard]] ibv_ah_attr vector() const {
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.dgid = gid_;
    attributes.grh.hop_limit = 1;
    return attributes;
  }

  void connect() const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qkey = kQueueKey;
    attributes.qp_access_flags =
        type_ == IBV_QPT_RC ? kAccess & ~IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_REMOTE_WRITE;
    const int base = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    const bool datagram = type_ == IBV_QPT_UD;
    must(ibv_modify_qp(qp, &attributes, base | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
         "INIT");
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer.number;
    attributes.ah_attr = vector();
    attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 4;
    attributes.min_rnr_timer = 1;
    const int reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    must(ibv_modify_qp(
             qp, &attributes,
             IBV_QP_STATE | (datagram ? 0 : connected) | (type_ == IBV_QPT_RC ? reliable : 0)),
         "RTR");
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 8;
    attributes.retry_cnt = 1;
    attributes.rnr_retry = 7;
    must(ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_SQ_PSN |
                           (type_ == IBV_QPT_RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                                                : 0)),
         "RTS");
  }

  ibv_qp_type type_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_gid gid_{};
  std::array<char, 4096> bytes_{};
};

// Both processes are connected when the peer has received a message.
std::unique_ptr<Numbered> join_by_number(ibv_qp_type type, bool is_peer) {
  auto side = std::make_unique<Numbered>(type);
  post_receive(side->qp, *side->memory);
  tell('r');
  (void)hear<char>();
  if (is_peer) {
    need_success(side->cq);
    tell('c');
    return side;
  }
  ibv_ah* address = type == IBV_QPT_UD ? side->address() : nullptr;
  must(post(side->qp, first_send, IBV_WR_SEND, *side->memory, {}, address, side->peer.number),
       "ibv_post_send");
  need_success(side->cq);
  (void)hear<char>();
  return side;
}

std::unique_ptr<Numbered> numbered(ibv_qp_type type) {
  const bool is_peer = fork_peer();
  static std::vector<std::unique_ptr<Numbered>> before;
  for (int i = 0; i < earlier; ++i) before.push_back(join_by_number(type, is_peer));
  auto side = join_by_number(type, is_peer);
  if (is_peer) wait_to_be_killed();
  return side;
}

// Later requests find the peer gone. Until then the receive stays where it is.
void reliable_idle() {
  const auto side = numbered(IBV_QPT_RC);
  kill_child();
  must(post(side->qp, write, IBV_WR_RDMA_WRITE, *side->memory, side->peer.region), "a write");
  note_completions(side->cq, 2);
  note_state(side->qp);
}

void reliable_waiting() {
  const auto side = numbered(IBV_QPT_RC);
  stop_child();
  must(post(side->qp, atomic, IBV_WR_ATOMIC_FETCH_AND_ADD, *side->memory, side->peer.region),
       "an atomic");
  kill_child();
  note_completions(side->cq, 2);
  note_state(side->qp);
}

void unreliable_connection() {
  const auto side = numbered(IBV_QPT_UC);
  kill_child();
  must(post(side->qp, write, IBV_WR_RDMA_WRITE, *side->memory, side->peer.region), "a write");
  note_completions(side->cq, 1);
  note_state(side->qp);
}

void datagrams() {
  const auto side = numbered(IBV_QPT_UD);
  kill_child();
  must(post(side->qp, send, IBV_WR_SEND, *side->memory, {}, side->address(), side->peer.number),
       "a send");
  note_completions(side->cq, 1);
  note_state(side->qp);
}

// --- rdma_cm -------------------------------------------------------------------------------------

struct Managed {
  rdma_event_channel* channel = must(rdma_create_event_channel(), "rdma_create_event_channel");
  rdma_cm_id* listener = nullptr;
  std::unique_ptr<Endpoint> endpoint;
  std::vector<std::unique_ptr<Endpoint>> before;
  Region peer;

  void make_endpoint(rdma_cm_id* id) {
    endpoint = std::make_unique<Endpoint>(id, 65536, kAccess);
    must(endpoint->receive(receive, endpoint->slice(0, 64)), "ibv_post_recv");
  }
  void connect(std::uint16_t port) {
    make_endpoint(interop::resolve(channel, kHost, std::to_string(port).c_str()));
    must(interop::connect(endpoint->id, endpoint->shared(), 4), "rdma_connect");
  }
  std::uint16_t listen() {
    listener = interop::listen(channel, kHost, "0");
    return ntohs(rdma_get_src_port(listener));
  }
  // Connections that come before the one that is looked at.
  void connect_earlier(bool serves, std::uint16_t port) {
    for (int i = 0; i < earlier; ++i) {
      serves ? await_request() : connect(port);
      if (serves) must(interop::accept(endpoint->id, endpoint->shared(), 4), "rdma_accept");
      await_established();
      tell('e');
      (void)hear<char>();
      earlier_ids.insert(endpoint->id);
      before.push_back(std::move(endpoint));
    }
  }
  void await_request() {
    rdma_cm_event* event = interop::expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id* id = event->id;
    rdma_ack_cm_event(event);
    make_endpoint(id);
  }
  void await_established() {
    rdma_cm_event* event = interop::expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    if (event->param.conn.private_data_len >= sizeof peer) {
      peer = interop::region_of(event->param.conn);
    }
    rdma_ack_cm_event(event);
  }
};

// A client whose server is killed later.
std::unique_ptr<Managed> managed() {
  const bool is_peer = fork_peer();
  auto side = std::make_unique<Managed>();
  if (is_peer) {
    tell(side->listen());
    side->connect_earlier(true, 0);
    side->await_request();
    must(interop::accept(side->endpoint->id, side->endpoint->shared(), 4), "rdma_accept");
    side->await_established();
    tell('e');
    wait_to_be_killed();
  }
  const auto port = hear<std::uint16_t>();
  side->connect_earlier(false, port);
  side->connect(port);
  side->await_established();
  (void)hear<char>();
  return side;
}

void managed_idle() {
  const auto side = managed();
  kill_child();
  note_event(side->channel);
  note_completions(side->endpoint->cq, 1);
  note_state(side->endpoint->qp);
}

void managed_waiting() {
  const auto side = managed();
  stop_child();
  must(post(side->endpoint->qp, atomic, IBV_WR_ATOMIC_FETCH_AND_ADD, *side->endpoint->all,
            side->peer),
       "an atomic");
  kill_child();
  note_event(side->channel);
  note_completions(side->endpoint->cq, 2);
  note_state(side->endpoint->qp);
}

void managed_later() {
  const auto side = managed();
  kill_child();
  note_event(side->channel);
  must(post(side->endpoint->qp, write, IBV_WR_RDMA_WRITE, *side->endpoint->all, side->peer),
       "a write");
  note_completions(side->endpoint->cq, 2);
}

void server_is_gone() {
  if (fork_peer()) {
    Managed side;
    tell(side.listen());
    wait_to_be_killed();
  }
  const auto port = hear<std::uint16_t>();
  kill_child();
  Managed side;
  side.connect(port);
  note_event(side.channel);
}

void server_dies_before_it_accepts() {
  const bool is_peer = fork_peer();
  Managed side;
  if (is_peer) {
    tell(side.listen());
    side.connect_earlier(true, 0);
    side.await_request();
    tell('r');
    wait_to_be_killed();
  }
  const auto port = hear<std::uint16_t>();
  side.connect_earlier(false, port);
  side.connect(port);
  (void)hear<char>();
  kill_child();
  note_event(side.channel);
}

// A server whose client dies while it connects.
std::unique_ptr<Managed> requested() {
  const bool is_peer = fork_peer();
  auto side = std::make_unique<Managed>();
  if (is_peer) {
    const auto port = hear<std::uint16_t>();
    side->connect_earlier(false, port);
    side->connect(port);
    wait_to_be_killed();
  }
  tell(side->listen());
  side->connect_earlier(true, 0);
  side->await_request();
  return side;
}

void accept_and_note(const Managed& side) {
  const Endpoint& endpoint = *side.endpoint;
  if (interop::accept(endpoint.id, endpoint.shared(), 4) == 0) return;
  note(errno == ECONNRESET ? "rdma_accept ECONNRESET" : std::strerror(errno));
}

void client_dies_before_the_accept() {
  const auto side = requested();
  kill_child();
  accept_and_note(*side);
  if (seen.empty()) note_event(side->channel);
}

void client_dies_during_the_accept() {
  const auto side = requested();
  stop_child();
  accept_and_note(*side);
  kill_child();
  note_event(side->channel);
}

const std::map<std::string, void (*)()> situations{{"rc_idle", reliable_idle},
                                                   {"rc_waiting", reliable_waiting},
                                                   {"uc", unreliable_connection},
                                                   {"ud", datagrams},
                                                   {"cm_idle", managed_idle},
                                                   {"cm_waiting", managed_waiting},
                                                   {"cm_later", managed_later},
                                                   {"cm_no_server", server_is_gone},
                                                   {"cm_request", server_dies_before_it_accepts},
                                                   {"cm_accept", client_dies_before_the_accept},
                                                   {"cm_accepting", client_dies_during_the_accept}};

}  // namespace

int main(int argc, char** argv) {
  const auto found = situations.find(argc == 2 || argc == 3 ? argv[1] : "");
  if (found == situations.end()) {
    std::printf("usage: killed_peer SITUATION [EARLIER]\n");
    return 2;
  }
  if (argc == 3) earlier = std::atoi(argv[2]);
  found->second();
  std::printf("outcome: %s\n", seen.c_str());
  std::fflush(stdout);
  std::_Exit(0);
}
