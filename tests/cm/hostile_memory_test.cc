// Memory that a process of the same user shares with the device, and that says anything. The device
// must neither end nor hang, and must serve others as before.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "cm/hostile_fixture.h"
#include "device/queue_pair/shared_receive_queue.h"

namespace weft::cm {
namespace {

namespace inbox = device::inbox;

// A connection whose other end writes whatever it likes into both inboxes, between any two calls of
// the program.
class HostileMemory : public HostilePair {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the other end writes while the device reads: that is what is tested";
#endif
    HostilePair::SetUp();
    if (IsSkipped()) return;
    region_ = register_memory(memory_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  }
  void TearDown() override {
    if (region_) context_->deregister_memory(region_);
    domain_.reset();
    HostilePair::TearDown();
  }

  ibv_mr* register_memory(std::vector<std::byte>& memory, int access) {
    if (!domain_) domain_.reset(context_->allocate_domain());
    const auto at = reinterpret_cast<std::uint64_t>(memory.data());
    ibv_mr* const made =
        context_->register_memory(*domain_, memory.data(), memory.size(), at, access);
    EXPECT_NE(made, nullptr);
    return made;
  }

  // What a program does: requests of every kind, to memory that this process grants.
  void post(const rdma_cm_id* id, ibv_srq* queue, test::Random& random) const {
    const auto at = reinterpret_cast<std::uint64_t>(memory_.data());
    const ibv_wr_opcode operation = any_operation(random);
    const bool atomic = operation >= IBV_WR_ATOMIC_CMP_AND_SWP;
    ibv_sge piece{at + 8 * random.below(64),
                  static_cast<std::uint32_t>(atomic ? 8 : random.below(3) * random.below(9000)),
                  region_->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = operation;
    request.wr.rdma.remote_addr = at + 8 * random.below(4096);
    request.wr.rdma.rkey = region_->rkey;
    if (atomic)
      request.wr.atomic = {.remote_addr = at, .compare_add = 1, .swap = 2, .rkey = region_->rkey};
    ibv_send_wr* bad = nullptr;
    (void)ibv_post_send(id->qp, &request, &bad);
    ibv_recv_wr receive{};
    receive.sg_list = &piece;
    receive.num_sge = 1;
    ibv_recv_wr* bad_receive = nullptr;
    if (queue) {
      (void)ibv_post_srq_recv(queue, &receive, &bad_receive);
    } else {
      (void)ibv_post_recv(id->qp, &receive, &bad_receive);
    }
  }

  // Mostly a number that may be right: what is wrong ends the connection.
  static std::uint64_t number(test::Random& random, std::uint64_t likely) {
    if (!random.chance(6)) return likely;
    const std::array edges{likely + 1, likely - 1,       std::uint64_t{0},
                           UINT64_MAX, std::uint64_t{1}, random.next()};
    return edges[random.below(edges.size())];
  }

  // A message in the inbox of the device, or what could be one.
  void write_message(inbox::Inbox& to, test::Random& random) const {
    const std::uint64_t position = to.consumed.load();
    inbox::Slot& slot = to.ring[position % inbox::slots];
    inbox::MessageHeader header{
        .kind = static_cast<inbox::Kind>(random.chance(2) ? 3 : random.below(7)),
        .flags = static_cast<std::uint8_t>(number(random, 0)),
        .slots = static_cast<std::uint16_t>(
            number(random, 1 + random.below(random.chance(4) ? 512 : 4))),
        .length_bytes = static_cast<std::uint32_t>(number(random, random.below(300))),
        .immediate_be = 1,
        .rkey = static_cast<std::uint32_t>(number(random, region_->rkey))};
    inbox::AccessRequest request{
        .number = number(random, position),
        .operation = static_cast<iwarp::Operation>(number(random, random.below(9))),
        .flags = static_cast<std::uint8_t>(random.next()),
        .pieces =
            static_cast<std::uint16_t>(number(random, random.below(random.chance(4) ? 200 : 3))),
        .stag = static_cast<std::uint32_t>(number(random, region_->rkey)),
        .offset = number(random, reinterpret_cast<std::uint64_t>(memory_.data())),
        .length_bytes = number(random, 64)};
    // All pieces are memory of this process, because the device copies to and from them.
    std::vector<std::byte> bytes(sizeof header + sizeof request + 200 * sizeof(inbox::Piece));
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &request, sizeof request);
    const inbox::Piece piece{reinterpret_cast<std::uint64_t>(memory_.data()), 64};
    for (std::size_t at = sizeof header + sizeof request; at < bytes.size(); at += sizeof piece) {
      std::memcpy(bytes.data() + at, &piece, sizeof piece);
    }
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      inbox::Slot& into = to.ring[(position + at / inbox::Slot::bytes) % inbox::slots];
      into.data[at % inbox::Slot::bytes] = bytes[at];
    }
    slot.stamp.store(number(random, position + 1));
  }

  // What the peer writes in the inbox of the device.
  void write_there(inbox::Inbox& to, test::Random& random) const {
    switch (random.below(12)) {
      case 0:
        return to.end.store(static_cast<inbox::End>(number(random, 0)));
      case 1:
        return to.wants_receive.store(static_cast<std::uint32_t>(random.next()));
      case 2:
        return to.wants_room.store(static_cast<std::uint32_t>(random.next()));
      case 3:
        to.rnr.count.store(random.next());
        return to.rnr.began_ns.store(random.next());
      case 4:
        to.refused.right.store(static_cast<iwarp::RemoteRight>(random.next()));
        return to.refused.length_bytes.store(random.next());
      case 5:
      case 6:
        to.answer.reply = {.status = static_cast<iwarp::Status>(number(random, 0)),
                           .original = random.next()};
        to.answer.count.fetch_add(random.below(3));
        return;
      case 7:
        to.copy.thread.store(static_cast<std::uint32_t>(random.next()));
        return to.copy.revocations.store(random.next());
      case 8:
        return to.accesses.writes.bytes.store(random.next());
      default:
        return write_message(to, random);
    }
  }

  // What the peer publishes in its own.
  void write_here(inbox::Inbox& own, test::Random& random) const {
    switch (random.below(12)) {
      case 0:
        return own.consumed.store(number(random, own.consumed.load() + 1));
      case 1:
        return own.receives.published.store(number(random, own.receives.published.load() + 1));
      case 2:
        return own.receives.starving.store(number(random, own.consumed.load() + 1));
      case 3:
        own.receives.matched = static_cast<std::uint32_t>(random.next());
        return;
      case 4:
        return own.armed.store(static_cast<inbox::Armed>(number(random, 1)));
      case 5:
        return own.open.store(static_cast<std::uint32_t>(number(random, 1)));
      case 6:
        own.domain = static_cast<std::uint32_t>(number(random, domain_->number));
        return own.access.store(static_cast<std::uint32_t>(random.next()));
      case 7:
        own.retry_timer_ns.store(number(random, 1000));
        own.hold_bytes.store(static_cast<std::uint32_t>(random.next()));
        return own.retries.store(static_cast<std::uint8_t>(random.next()));
      case 8:
        own.withdrawn_from.store(random.below(4));
        return own.withdrawn.store(number(random, 2));
      default: {
        inbox::Receive& receive = own.near[random.below(own.near.size())];
        receive.length_bytes = number(random, 10'000);
        receive.pieces = static_cast<std::uint32_t>(number(random, 1));
        receive.first = {.address = reinterpret_cast<std::uint64_t>(memory_.data()) +
                                    random.below(memory_.size()),
                         .length_bytes = static_cast<std::uint32_t>(number(random, 5000)),
                         .lkey = static_cast<std::uint32_t>(number(random, region_->lkey))};
      }
    }
  }

  // Calls of the program, and what the other end writes between them.
  void converse(const rdma_cm_id* id, ibv_srq* queue, HostileEnd& end, std::uint32_t number,
                test::Random& random) const {
    for (int i = 0; i < 40; ++i) {
      if (random.chance(2)) post(id, queue, random);
      if (random.chance(2)) write_there(*end.device_inbox(), random);
      if (random.chance(2)) write_here(end.own(), random);
      if (random.chance(2)) end.ring(number);
      std::array<ibv_wc, 4> found;
      (void)ibv_poll_cq(id->send_cq, found.size(), found.data());
      (void)ibv_poll_cq(id->recv_cq, found.size(), found.data());
    }
    // A copy that is announced would be awaited.
    end.device_inbox()->copy.sequence.store(0);
  }

  // As it should be in the beginning.
  void open(HostileEnd& end) const {
    inbox::Inbox& own = end.own();
    std::memset(static_cast<void*>(&own), 0, sizeof own);
    own.domain = domain_->number;
    own.access.store(region_access);
    own.receives.published.store(8);
    own.hold_bytes.store(1 << 20);
    for (inbox::Receive& receive : own.near) {
      receive = {.length_bytes = 9000,
                 .pieces = 1,
                 .first = {reinterpret_cast<std::uint64_t>(memory_.data()), 9000, region_->lkey}};
    }
    own.open.store(1);
  }

  static constexpr std::uint32_t region_access =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  std::unique_ptr<device::ProtectionDomain> domain_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(65536);
  ibv_mr* region_ = nullptr;
};

// As the dialing side.
TEST_F(HostileMemory, SaysAnythingToAClient) {
  for (const std::uint64_t seed : test::seeds(200)) {
    SCOPED_TRACE(test::seed_trace(seed));
    test::Random random(seed);
    HostileEnd end = HostileEnd::that_serves(*device_, address());
    rdma_cm_id* const client = make_client(active_, listener_);
    auto attributes = queue_pair_attributes();
    ASSERT_EQ(manager_->create_qp(client, &domain_->pd, &attributes), 0);
    rdma_conn_param parameters{};
    parameters.rnr_retry_count = static_cast<std::uint8_t>(random.below(8));
    ASSERT_EQ(manager_->connect(client, &parameters), 0);
    auto request = end.await();
    ASSERT_TRUE(request);
    ASSERT_TRUE(end.map(*request));
    open(end);
    const HostileEnd::Whole reply = end.acceptance(*context_, *request);
    end.send(reply.header, reply.frame, reply.files);
    ASSERT_EQ(await_client(), RDMA_CM_EVENT_ESTABLISHED);
    converse(client, nullptr, end, reply.header.number, random);
    destroy(client);
    while (!quiet(active_)) next(active_);
  }
  expect_service();
}

// As the serving side, which has a shared receive queue or receives of its own.
TEST_F(HostileMemory, SaysAnythingToAServer) {
  ibv_srq_init_attr wanted{};
  wanted.attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0};
  device::SharedReceiveQueue shared(*context_, &domain_->pd, wanted);
  for (const std::uint64_t seed : test::seeds(200)) {
    SCOPED_TRACE(test::seed_trace(seed));
    test::Random random(seed);
    HostileEnd end = HostileEnd::that_dials(*device_);
    open(end);
    const HostileEnd::Whole request = end.request(*context_, target());
    end.send(request.header, request.frame, request.files);
    auto event = expect(strangers_, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_NE(event, nullptr);
    rdma_cm_id* const server = event->id;
    event.reset();
    ibv_srq* const queue = random.chance(2) ? shared.verbs() : nullptr;
    auto attributes = queue_pair_attributes();
    attributes.srq = queue;
    ASSERT_EQ(manager_->create_qp(server, &domain_->pd, &attributes), 0);
    rdma_conn_param parameters{};
    ASSERT_EQ(manager_->accept(server, &parameters), 0);
    auto reply = end.await();
    ASSERT_TRUE(reply);
    ASSERT_TRUE(end.map(*reply));
    converse(server, queue, end, request.header.number, random);
    destroy(server);
    while (!quiet(strangers_)) next(strangers_);
  }
  expect_service();
}

}  // namespace
}  // namespace weft::cm
