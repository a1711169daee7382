// A process that agrees to leave TCP as any other does, makes connections, and uses them. Meanwhile
// another thread of it changes the memory that it shares with its peer, until it kills itself.
//
//   hostile_process PORT SEED TALLY   a port of 127.0.0.1; a descriptor of memory for a Tally
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "cm/cm.h"
#include "cm/scribbler.h"
#include "device/context.h"
#include "device/device.h"

namespace weft::cm::hostile {
namespace {

constexpr std::size_t memory_bytes = std::size_t{64} << 10;
constexpr unsigned rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::size_t most_connections = 3;
// A process that cannot go on ends all the same.
constexpr unsigned longest_s = 40;

class Process {
 public:
  Process(std::uint16_t port, std::uint64_t seed, Tally& tally)
      : port_(port), random_(seed), tally_(tally) {}

  [[noreturn]] void run();

 private:
  struct Connection {
    rdma_cm_id* id = nullptr;
    bool lost = false;
  };

  void register_memory();
  [[nodiscard]] bool connect();
  [[nodiscard]] rdma_cm_id* ask();
  [[nodiscard]] bool await(rdma_cm_event_type wanted);
  void start_scribbling();
  void use(Connection& connection);
  void post_receives(ibv_qp* queue_pair);
  void look_for_leaks() const;
  void end(Connection& connection);

  const std::uint16_t port_;
  test::Random random_;
  Tally& tally_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Context> context_;
  std::unique_ptr<Manager> manager_;
  rdma_event_channel* events_ = nullptr;
  std::unique_ptr<device::ProtectionDomain> domain_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(memory_bytes);
  ibv_mr* region_ = nullptr;
  ibv_mr* file_region_ = nullptr;  // of a file, which the peer maps
  std::vector<Connection> connections_;
  Granted granted_;
  std::optional<Granted> victim_;
  std::unique_ptr<Scribbler> scribbler_;
};

void Process::register_memory() {
  domain_.reset(context_->allocate_domain());
  const auto at = reinterpret_cast<std::uint64_t>(memory_.data());
  region_ = context_->register_memory(*domain_, memory_.data(), memory_.size(), at, rights);
  const int file = memfd_create("hostile-file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const bool made =
      ftruncate(file, memory_bytes) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
  if (made) {
    file_region_ = context_->register_file(
        *domain_, {.file = file, .offset_bytes = 0, .length_bytes = memory_bytes}, 0, rights);
  }
  if (!region_ || !file_region_) _exit(3);
  granted_ = {.address = at,
              .length_bytes = memory_bytes,
              .rkey = region_->rkey,
              .other_address = 0,
              .other_key = file_region_->rkey,
              .other_bytes = memory_bytes};
}

// False: another event, or none in time.
bool Process::await(rdma_cm_event_type wanted) {
  pollfd entry{events_->fd, POLLIN, 0};
  rdma_cm_event* event = nullptr;
  if (::poll(&entry, 1, 2000) != 1 || manager_->get_cm_event(events_, &event) != 0) return false;
  const bool right = event->event == wanted;
  const rdma_conn_param& data = event->param.conn;
  if (right && wanted == RDMA_CM_EVENT_ESTABLISHED && data.private_data_len >= sizeof(Granted)) {
    std::memcpy(&victim_.emplace(), data.private_data, sizeof(Granted));
  }
  if (event->event == RDMA_CM_EVENT_DISCONNECTED) {
    for (Connection& one : connections_) one.lost = one.lost || one.id == event->id;
  }
  manager_->ack_cm_event(event);
  return right;
}

// Events of earlier connections may come first.
rdma_cm_id* Process::ask() {
  rdma_cm_id* id = nullptr;
  if (manager_->create_id(events_, &id, nullptr, RDMA_PS_TCP) != 0) return nullptr;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = port_;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto arrives = [this](rdma_cm_event_type wanted) {
    for (int i = 0; i < 20; ++i) {
      if (await(wanted)) return true;
    }
    return false;
  };
  ibv_qp_init_attr attributes{};
  attributes.cap = {.max_send_wr = 16,
                    .max_recv_wr = 16,
                    .max_send_sge = 2,
                    .max_recv_sge = 2,
                    .max_inline_data = 64};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  rdma_conn_param parameters{};
  parameters.private_data = &granted_;
  parameters.private_data_len = sizeof granted_;
  parameters.responder_resources = parameters.initiator_depth = 4;
  parameters.rnr_retry_count = 1;
  const bool asked =
      manager_->resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 2000) == 0 &&
      arrives(RDMA_CM_EVENT_ADDR_RESOLVED) && manager_->resolve_route(id, 2000) == 0 &&
      arrives(RDMA_CM_EVENT_ROUTE_RESOLVED) &&
      manager_->create_qp(id, &domain_->pd, &attributes) == 0;
  if (asked && scribbler_) scribbler_->own(id->qp->qp_num);
  if (asked && manager_->connect(id, &parameters) == 0 && arrives(RDMA_CM_EVENT_ESTABLISHED)) {
    return id;
  }
  Connection failed{.id = id};
  end(failed);
  return nullptr;
}

bool Process::connect() {
  rdma_cm_id* const id = ask();
  if (!id) return false;
  post_receives(id->qp);
  connections_.push_back({.id = id});
  ++tally_.connections;
  if (!scribbler_) start_scribbling();
  return true;
}

// It also decides when the process dies, wherever its other threads are.
void Process::start_scribbling() {
  scribbler_ = std::make_unique<Scribbler>(random_.next(), *victim_, granted_);
  for (const Connection& one : connections_) scribbler_->own(one.id->qp->qp_num);
  const std::uint64_t until = 500 + random_.below(5000);
  std::thread([this, until] {
    for (std::uint64_t i = 0; i < until; ++i) {
      if (i % 200 == 0) tally_.areas.fetch_add(scribbler_->look());
      scribbler_->change();
      ++tally_.changes;
    }
    if (scribbler_->holds_secret()) ++tally_.leaks;
    look_for_leaks();
    kill(getpid(), SIGKILL);
  }).detach();
}

void Process::post_receives(ibv_qp* queue_pair) {
  ibv_sge piece{granted_.address + 32768, 16384, region_->lkey};
  ibv_recv_wr receive{};
  receive.sg_list = &piece;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  while (ibv_post_recv(queue_pair, &receive, &bad) == 0) continue;
}

// Requests of all kinds, nearly all of them right.
void Process::use(Connection& connection) {
  ibv_qp* const queue_pair = connection.id->qp;
  constexpr std::array operations{IBV_WR_SEND,       IBV_WR_SEND_WITH_IMM,
                                  IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                  IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD};
  const ibv_wr_opcode operation = operations[random_.below(operations.size())];
  const bool atomic = operation == IBV_WR_ATOMIC_FETCH_AND_ADD;
  const auto bytes = static_cast<std::uint32_t>(atomic              ? 8
                                                : random_.chance(3) ? random_.below(16'000)
                                                                    : random_.below(200));
  ibv_sge piece{granted_.address + 8 * random_.below(1024), bytes, region_->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = operation;
  request.wr.rdma = {.remote_addr = victim_->address + 8 * random_.below(4096),
                     .rkey = victim_->rkey};
  if (random_.chance(100)) request.wr.rdma.remote_addr = victim_->other_address;
  if (atomic) {
    request.wr.atomic = {.remote_addr = victim_->address + 8 * random_.below(4096),
                         .compare_add = 1,
                         .swap = 2,
                         .rkey = victim_->rkey};
  }
  ibv_send_wr* bad = nullptr;
  (void)ibv_post_send(queue_pair, &request, &bad);
  std::array<ibv_wc, 8> found;
  for (ibv_cq* queue : {connection.id->send_cq, connection.id->recv_cq}) {
    const int count = ibv_poll_cq(queue, found.size(), found.data());
    for (int i = 0; i < count; ++i) connection.lost |= found[i].status != IBV_WC_SUCCESS;
  }
  post_receives(queue_pair);
}

void Process::look_for_leaks() const {
  const std::size_t step = sizeof secret;
  for (std::size_t at = 0; at + step <= memory_.size(); ++at) {
    if (std::memcmp(memory_.data() + at, &secret, step) == 0) ++tally_.leaks;
  }
}

void Process::end(Connection& connection) {
  if (connection.id->qp) manager_->destroy_qp(connection.id);
  (void)manager_->destroy_id(connection.id);
}

void Process::run() {
  alarm(longest_s);
  device::Settings settings;
  settings.disconnect.proofs_ns = 1'000'000;
  auto made = device::Device::create(settings);
  if (!made.ok()) _exit(3);
  device_ = std::move(*made);
  context_ = std::make_unique<device::Context>(*device_);
  manager_ = std::make_unique<Manager>([this] { return context_.get(); }, Options());
  events_ = manager_->create_event_channel();
  register_memory();
  while (true) {
    if (connections_.size() < most_connections && (connections_.empty() || random_.chance(20))) {
      (void)connect();
    }
    for (Connection& one : connections_) {
      for (std::uint64_t i = random_.below(20); i > 0 && !one.lost; --i) use(one);
    }
    pollfd entry{events_->fd, POLLIN, 0};
    while (::poll(&entry, 1, 0) == 1) (void)await(RDMA_CM_EVENT_DISCONNECTED);
    for (std::size_t i = 0; i < connections_.size();) {
      if (!connections_[i].lost && !random_.chance(500)) {
        ++i;
        continue;
      }
      end(connections_[i]);
      connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

}  // namespace
}  // namespace weft::cm::hostile

int main(int count, char** words) {
  using weft::cm::hostile::Process;
  using weft::cm::hostile::Tally;
  if (count != 4) return 2;
  void* const at =
      mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED, std::atoi(words[3]), 0);
  if (at == MAP_FAILED) return 2;
  const auto port = htons(static_cast<std::uint16_t>(std::atoi(words[1])));
  const auto seed = static_cast<std::uint64_t>(std::atoll(words[2]));
  Process(port, seed, *std::launder(reinterpret_cast<Tally*>(at))).run();
}
