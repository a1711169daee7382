// From the third connection between two processes of one host on there is no TCP any more: the pair
// of processes makes it (device/local/process_pair.h). Here both processes are this one.
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/own_sockets.h"
#include "cm/fixture.h"
#include "device/addresses.h"
#include "device/limits.h"
#include "device/queue_pair/queue_pair.h"
#include "device/queue_pair/shared_receive_queue.h"
#include "device/tap/capture_tap.h"
#include "device/tap/device_capture.h"

namespace weft::cm {
namespace {

// The links of /proc/self/fd that begin with `kind`.
int descriptors(const std::string& kind) {
  int found = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    std::array<char, 256> target{};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(path.c_str(), target.data(), target.size() - 1) <= 0) continue;
    if (std::string(target.data()).starts_with(kind)) ++found;
  }
  closedir(folder);
  return found;
}

class ProcessPairTest : public CmTest {
 protected:
  void SetUp() override {
    CmTest::SetUp();
    if (settings_.same_host == device::SameHost::off) GTEST_SKIP() << "about leaving TCP";
    for (Pair& pair : first_) {
      pair = connect_pair();
      send_one(pair);  // which waits until both ends have left TCP
    }
    ASSERT_NE(device_->process_pairs().towards(listening_address()), nullptr);
  }

  void TearDown() override {
    for (Pair& pair : first_) {
      if (pair.client) destroy(pair);
    }
    CmTest::TearDown();
  }

  // A client whose request has arrived.
  void ask(rdma_cm_id*& client, rdma_cm_id*& server) {
    client = make_client(active_, listener_);
    make_queue_pair(client);
    rdma_conn_param parameters{};
    ASSERT_EQ(manager_->connect(client, &parameters), 0);
    const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_NE(request, nullptr);
    server = request->id;
  }

  void send_one(const Pair& pair) {
    auto* domain = device::ProtectionDomain::of(pair.client->pd);
    std::array<std::uint64_t, 2> words{0x1122334455667788, 0};
    const auto at = reinterpret_cast<std::uint64_t>(words.data());
    ibv_mr* const region =
        context_->register_memory(*domain, words.data(), sizeof words, at, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(region, nullptr);
    ibv_sge from{at, 8, region->lkey};
    ibv_sge into{at + 8, 8, region->lkey};
    ibv_recv_wr receive{};
    receive.sg_list = &into;
    receive.num_sge = 1;
    ibv_recv_wr* bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(pair.server->qp, &receive, &bad_receive), 0);
    ibv_send_wr send{};
    send.sg_list = &from;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(pair.client->qp, &send, &bad), 0);
    EXPECT_EQ(completion_of(pair.server->recv_cq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion_of(pair.client->send_cq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(words[1], words[0]);
    context_->deregister_memory(region);
  }

  [[nodiscard]] static std::string carrier(const rdma_cm_id* id) {
    return std::string(device::QueuePair::of(id->qp)->carrier_note().name);
  }

  void disconnect(const Pair& pair) {
    ASSERT_EQ(manager_->disconnect(pair.client), 0);
    expect(active_, RDMA_CM_EVENT_DISCONNECTED);
    expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  }

  std::array<Pair, 2> first_;
};

TEST_F(ProcessPairTest, MovesDataWithoutASocket) {
  // The serving side has the socket of the pair by then.
  Pair third = connect_pair();
  const int sockets = descriptors("socket:");
  const int files = descriptors("/memfd:");
  std::array<Pair, 4> pairs;
  for (Pair& pair : pairs) {
    pair = connect_pair();
    EXPECT_EQ(carrier(pair.client), "same-host");
    EXPECT_EQ(carrier(pair.server), "same-host");
    EXPECT_NE(Manager::get_src_port(pair.client), 0);
    EXPECT_EQ(Manager::get_dst_port(pair.server), Manager::get_src_port(pair.client));
  }
  for (const Pair& pair : pairs) send_one(pair);
  EXPECT_EQ(descriptors("socket:"), sockets);
  EXPECT_LE(descriptors("/memfd:"), files + 8);  // files of inboxes
  destroy(third);
  for (Pair& pair : pairs) {
    disconnect(pair);
    destroy(pair);
  }
}

TEST_F(ProcessPairTest, UsesItsInboxesAgain) {
  const auto run = [this] {
    Pair pair = connect_pair();
    send_one(pair);
    disconnect(pair);
    destroy(pair);
  };
  for (int i = 0; i < 4; ++i) run();
  const int before = descriptors("");
  for (int i = 0; i < 40; ++i) run();
  EXPECT_LE(descriptors(""), before);
}

TEST_F(ProcessPairTest, CarriesPrivateDataBothWays) {
  const std::string request = "from the client";
  const std::string reply = "from the server";
  rdma_conn_param client{};
  client.private_data = request.data();
  client.private_data_len = static_cast<std::uint8_t>(request.size());
  client.responder_resources = 3;
  client.initiator_depth = 2;
  rdma_conn_param server{};
  server.private_data = reply.data();
  server.private_data_len = static_cast<std::uint8_t>(reply.size());
  server.responder_resources = 2;
  server.initiator_depth = 3;
  Pair pair = connect_pair(client, server);
  EXPECT_EQ(pair.client_data.substr(0, request.size()), request);
  EXPECT_EQ(pair.server_data.substr(0, reply.size()), reply);
  EXPECT_EQ(pair.request.responder_resources, 2);
  EXPECT_EQ(pair.request.initiator_depth, 3);
  destroy(pair);
}

TEST_F(ProcessPairTest, PassesOnARejection) {
  rdma_cm_id* client = nullptr;
  rdma_cm_id* server = nullptr;
  ask(client, server);
  const std::string reason = "no";
  ASSERT_EQ(manager_->reject(server, reason.data(), static_cast<std::uint8_t>(reason.size())), 0);
  auto event = expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
  ASSERT_NE(event, nullptr);
  const auto& conn = event->param.conn;
  ASSERT_GE(conn.private_data_len, reason.size());
  EXPECT_EQ(std::memcmp(conn.private_data, reason.data(), reason.size()), 0);
  event.reset();
  EXPECT_EQ(manager_->destroy_id(server), 0);
  destroy(client);
}

TEST_F(ProcessPairTest, AcceptFailsWhereTheClientHasGivenUp) {
  rdma_cm_id* client = nullptr;
  rdma_cm_id* server = nullptr;
  ask(client, server);
  destroy(client);
  make_queue_pair(server);
  rdma_conn_param parameters{};
  // The client's word may be on its way.
  int failed = manager_->accept(server, &parameters);
  if (failed == 0) {
    expect(passive_, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
  } else {
    EXPECT_EQ(errno, ECONNRESET);
  }
  destroy(server);
  Pair pair = connect_pair();
  send_one(pair);
  destroy(pair);
}

TEST_F(ProcessPairTest, UsesTcpWhereTheListenerIsGone) {
  sockaddr_storage address = listening_address();
  ASSERT_EQ(manager_->destroy_id(listener_), 0);
  listener_ = nullptr;
  rdma_cm_id* const client = make_client_to(active_, reinterpret_cast<sockaddr*>(&address));
  make_queue_pair(client);
  rdma_conn_param parameters{};
  ASSERT_EQ(manager_->connect(client, &parameters), 0);
  expect(active_, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED);
  destroy(client);
}

// A capture shows what iWARP carries, so a server that begins one before it accepts speaks iWARP.
TEST_F(ProcessPairTest, SpeaksIwarpWhereTheServerHasBegunACapture) {
  Pair pair;
  ask(pair.client, pair.server);
  const auto capture = device_->capture()->start(
      []() -> device::DeviceCapture::Opened { return device::CaptureFile::to([](Bytes) {}); });
  ASSERT_TRUE(capture);
  make_queue_pair(pair.server);
  rdma_conn_param parameters{};
  ASSERT_EQ(manager_->accept(pair.server, &parameters), 0);
  expect(active_, RDMA_CM_EVENT_ESTABLISHED);
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(carrier(pair.client), "tcp");
  EXPECT_EQ(carrier(pair.server), "tcp");
  send_one(pair);
  disconnect(pair);
  destroy(pair);
  EXPECT_TRUE(device_->capture()->stop(**capture));
}

// Receives that are not published: their end matches messages with them.
class SharedReceives {
 public:
  explicit SharedReceives(device::Context& context)
      : context_(context), domain_(context.allocate_domain()) {
    ibv_srq_init_attr wanted{};
    wanted.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    queue_ = std::make_unique<device::SharedReceiveQueue>(context, &domain_->pd, wanted);
    const auto at = reinterpret_cast<std::uint64_t>(bytes_.data());
    region_ =
        context.register_memory(*domain_, bytes_.data(), bytes_.size(), at, IBV_ACCESS_LOCAL_WRITE);
  }
  ~SharedReceives() { context_.deregister_memory(region_); }
  SharedReceives(const SharedReceives&) = delete;
  SharedReceives& operator=(const SharedReceives&) = delete;

  [[nodiscard]] ibv_srq* queue() const { return queue_->verbs(); }
  [[nodiscard]] ibv_pd* domain() const { return &domain_->pd; }
  void post() {
    ibv_sge into{reinterpret_cast<std::uint64_t>(bytes_.data()), 16, region_->lkey};
    ibv_recv_wr receive{};
    receive.sg_list = &into;
    receive.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(queue(), &receive, &bad), 0);
  }

 private:
  device::Context& context_;
  std::unique_ptr<device::ProtectionDomain> domain_;
  std::unique_ptr<device::SharedReceiveQueue> queue_;
  std::array<std::byte, 16> bytes_{};
  ibv_mr* region_ = nullptr;
};

void expect_empty_send(const rdma_cm_id* from, const rdma_cm_id* to) {
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(from->qp, &send, &bad), 0);
  EXPECT_EQ(completion_of(to->recv_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion_of(from->send_cq).status, IBV_WC_SUCCESS);
}

// The server's end is made before the client's is: what it knows of the client's receives it must
// not have read too early.
TEST_F(ProcessPairTest, SharesMemoryWhereBothHaveSharedReceiveQueues) {
  SharedReceives at_server(*context_);
  SharedReceives at_client(*context_);
  Pair pair;
  pair.client = make_client(active_, listener_);
  auto attributes = queue_pair_attributes();
  attributes.srq = at_client.queue();
  ASSERT_EQ(manager_->create_qp(pair.client, at_client.domain(), &attributes), 0);
  rdma_conn_param parameters{};
  ASSERT_EQ(manager_->connect(pair.client, &parameters), 0);
  const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_NE(request, nullptr);
  pair.server = request->id;
  attributes = queue_pair_attributes();
  attributes.srq = at_server.queue();
  ASSERT_EQ(manager_->create_qp(pair.server, at_server.domain(), &attributes), 0);
  ASSERT_EQ(manager_->accept(pair.server, &parameters), 0);
  expect(active_, RDMA_CM_EVENT_ESTABLISHED);
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(carrier(pair.client), "same-host");
  EXPECT_EQ(carrier(pair.server), "same-host");
  at_server.post();
  expect_empty_send(pair.client, pair.server);
  at_client.post();
  expect_empty_send(pair.server, pair.client);
  disconnect(pair);
  destroy(pair);
}

// The child has copies of the descriptors and of the memory that both processes map.
TEST_F(ProcessPairTest, StaysWithTheParentAfterAFork) {
  Pair pair = connect_pair();
  const pid_t child = fork();
  if (child == 0) {
    device_->abandon_after_fork();
    manager_->abandon_after_fork();
    own_sockets::close_after_fork();
    const int open = descriptors("socket:") + descriptors("/memfd:weft-");
    manager_->destroy_qp(pair.client);
    _exit(manager_->destroy_id(pair.client) == 0 ? open : -1);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);  // nothing was left open in the child
  send_one(pair);
  Pair next = connect_pair();
  EXPECT_EQ(carrier(next.client), "same-host");
  send_one(next);
  disconnect(next);
  destroy(next);
  disconnect(pair);
  destroy(pair);
}

// More inboxes than a pair keeps while nothing uses them (limits::kept_inboxes).
TEST_F(ProcessPairTest, GivesBackWhatManyConnectionsNeeded) {
  constexpr std::size_t many = 3 * device::limits::kept_inboxes;
  int files = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<Pair> pairs(many);
    for (Pair& pair : pairs) pair = connect_pair();
    for (const Pair& pair : pairs) send_one(pair);
    const int most = descriptors("/memfd:weft-inboxes");
    for (Pair& pair : pairs) {
      disconnect(pair);
      destroy(pair);
    }
    // Whatever the two ends left at last is looked at when the next connection begins.
    for (int i = 0; i < 64; ++i) {
      Pair pair = connect_pair();
      disconnect(pair);
      destroy(pair);
    }
    const int kept = descriptors("/memfd:weft-inboxes");
    EXPECT_LT(kept, most);
    if (round > 0) {
      EXPECT_LE(kept, files);
    }
    files = kept;
  }
}

TEST_F(ProcessPairTest, EndsWhereTheServerDestroysItsQueuePair) {
  Pair pair = connect_pair();
  destroy(pair.server);
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair.client);
}

}  // namespace
}  // namespace weft::cm
