// Extended reliable connections (XRC): domains, shared receive queues with numbers, and queue pairs
// that send to them or receive for them.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "device/query.h"
#include "device/queue_pair/xrc_domain.h"
#include "device/raw_end.h"

namespace weft::device {
namespace {

constexpr std::uint32_t message_bytes = 4096;

ibv_xrcd* open_domain(Context& context, int file = -1, int flags = O_CREAT) {
  ibv_xrcd_init_attr attributes{};
  attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attributes.fd = file;
  attributes.oflags = flags;
  return ibv_open_xrcd(context.verbs(), &attributes);
}

// The two extended calls by the table of the context: the functions of <infiniband/verbs.h> fall
// back to ibv_create_srq and ibv_create_qp of libibverbs, which a test of the device does not link.
ibv_srq* create_shared_queue(Context& context, ibv_srq_init_attr_ex& attributes) {
  return verbs_get_ctx(context.verbs())->create_srq_ex(context.verbs(), &attributes);
}

ibv_qp* create_queue_pair(Context& context, ibv_qp_init_attr_ex& attributes) {
  return verbs_get_ctx(context.verbs())->create_qp_ex(context.verbs(), &attributes);
}

// A shared receive queue with a protection domain and memory of its own.
class Inbox {
 public:
  Inbox(Context& context, ibv_xrcd* xrc, CompletionQueue& completions)
      : domain(context.allocate_domain()), memory(context, *domain, 4 * message_bytes, all_access) {
    ibv_srq_init_attr_ex attributes{};
    attributes.attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0};
    attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                           IBV_SRQ_INIT_ATTR_CQ;
    attributes.srq_type = IBV_SRQT_XRC;
    attributes.pd = &domain->pd;
    attributes.xrcd = xrc;
    attributes.cq = completions.verbs();
    queue = create_shared_queue(context, attributes);
    if (!queue) throw std::runtime_error("no shared receive queue");
    EXPECT_EQ(ibv_get_srq_num(queue, &number), 0);
  }
  ~Inbox() {
    memory.deregister();
    destroy();
    delete domain;
  }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  void destroy() {
    if (!queue) return;
    Context::of(queue->context)->settle_events(queue);
    --Context::of(queue->context)->objects;
    --domain->users;
    delete SharedReceiveQueue::of(std::exchange(queue, nullptr));
  }
  void post(std::uint64_t wr_id, std::size_t part = 0) {
    ibv_sge slice = memory.sge(part * message_bytes, message_bytes);
    ibv_recv_wr request{};
    ibv_recv_wr* bad = nullptr;
    request.wr_id = wr_id;
    request.sg_list = &slice;
    request.num_sge = 1;
    EXPECT_EQ(ibv_post_srq_recv(queue, &request, &bad), 0);
  }

  ProtectionDomain* domain;
  Buffer memory;
  ibv_srq* queue = nullptr;
  std::uint32_t number = 0;
};

ibv_wc await(CompletionQueue& queue) {
  ibv_wc completion{};
  const std::uint64_t deadline_ns = sys::now_ns() + 10'000'000'000U;
  while (ibv_poll_cq(queue.verbs(), 1, &completion) == 0) {
    if (sys::now_ns() < deadline_ns) continue;
    ADD_FAILURE() << "no completion within ten seconds";
    completion.status = IBV_WC_GENERAL_ERR;
    break;
  }
  return completion;
}

// One program: a sending and a receiving queue pair, in a domain with two shared queues.
class Program {
 public:
  explicit Program(Device& device)
      : context(device),
        domain(context.allocate_domain()),
        sends(context, 256, nullptr, nullptr),
        receives(context, 256, nullptr, nullptr),
        xrc(open_domain(context)) {
    first = std::make_unique<Inbox>(context, xrc, receives);
    second = std::make_unique<Inbox>(context, xrc, receives);
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_XRC_RECV;
    attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attributes.xrcd = xrc;
    receiver = create_queue_pair(context, attributes);
    attributes = {};
    attributes.qp_type = IBV_QPT_XRC_SEND;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    attributes.pd = &domain->pd;
    attributes.send_cq = sends.verbs();
    attributes.cap = {.max_send_wr = 64,
                      .max_recv_wr = 0,
                      .max_send_sge = 1,
                      .max_recv_sge = 0,
                      .max_inline_data = 0};
    sender = create_queue_pair(context, attributes);
    EXPECT_NE(receiver, nullptr);
    EXPECT_NE(sender, nullptr);
    source = std::make_unique<Buffer>(context, *domain, 2 * 1024 * 1024, all_access);
  }
  ~Program() {
    destroy(sender);
    destroy(receiver);
    source.reset();
    first.reset();
    second.reset();
    EXPECT_EQ(ibv_close_xrcd(xrc), 0);
    EXPECT_EQ(domain->users, 0);
    delete domain;
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  static void destroy(ibv_qp*& qp) {
    if (qp) QueuePair::of(qp)->close_handle(std::exchange(qp, nullptr));
  }

  static void to_rts(ibv_qp* qp, const ibv_gid& gid, std::uint32_t peer, std::uint8_t rnr_retries) {
    const bool sends = qp->qp_type == IBV_QPT_XRC_SEND;
    QueuePair& queue_pair = *QueuePair::of(qp);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = all_access;
    ASSERT_EQ(queue_pair.modify(
                  attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    ASSERT_EQ(queue_pair.modify(RawEnd::rtr_attributes(gid, peer),
                                sends ? unreliable_rtr_mask : rtr_mask),
              0);
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 1;
    attributes.rnr_retry = rnr_retries;
    attributes.max_rd_atomic = 1;
    const int of_sender = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    ASSERT_EQ(queue_pair.modify(attributes, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN |
                                                (sends ? of_sender : 0)),
              0);
  }

  ibv_send_wr request(std::uint64_t wr_id, std::uint32_t to) {
    ibv_send_wr made{};
    made.wr_id = wr_id;
    made.opcode = IBV_WR_SEND;
    made.send_flags = IBV_SEND_SIGNALED;
    made.qp_type.xrc.remote_srqn = to;
    return made;
  }
  int post(ibv_send_wr work, std::size_t bytes = message_bytes) {
    ibv_sge slice = source->sge(0, bytes);
    work.sg_list = &slice;
    work.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(sender, &work, &bad);
  }

  Context context;
  ProtectionDomain* domain;
  CompletionQueue sends;
  CompletionQueue receives;
  ibv_xrcd* xrc;
  std::unique_ptr<Inbox> first;
  std::unique_ptr<Inbox> second;
  ibv_qp* receiver = nullptr;
  ibv_qp* sender = nullptr;
  std::unique_ptr<Buffer> source;
};

class Xrc : public ::testing::TestWithParam<bool> {
 protected:
  Xrc()
      : device_a(GetParam() ? make_ib_device() : make_roce_device()),
        device_b(GetParam() ? make_ib_device() : make_roce_device()),
        a(*device_a),
        b(*device_b) {}

  void connect(std::uint8_t rnr_retries = 7) {
    ibv_gid gid_a{};
    ibv_gid gid_b{};
    ASSERT_EQ(query_gid(a.context, 1, 0, gid_a), 0);
    ASSERT_EQ(query_gid(b.context, 1, 0, gid_b), 0);
    Program::to_rts(a.sender, gid_b, b.receiver->qp_num, rnr_retries);
    Program::to_rts(b.receiver, gid_a, a.sender->qp_num, rnr_retries);
    Program::to_rts(b.sender, gid_a, a.receiver->qp_num, rnr_retries);
    Program::to_rts(a.receiver, gid_b, b.sender->qp_num, rnr_retries);
  }

  std::unique_ptr<Device> device_a;
  std::unique_ptr<Device> device_b;
  Program a;
  Program b;
};

TEST_P(Xrc, EachSendReachesTheQueueThatItNames) {
  connect();
  b.first->post(1);
  b.second->post(2);
  b.first->post(3, 1);
  std::uint8_t seed = 10;
  for (const Inbox* to : {b.second.get(), b.first.get(), b.first.get()}) {
    a.source->fill(seed++);
    ASSERT_EQ(a.post(a.request(7, to->number)), 0);
    EXPECT_EQ(await(a.sends).status, IBV_WC_SUCCESS);
  }
  for (const std::uint64_t expected : {2, 1, 3}) {
    const ibv_wc completion = await(b.receives);
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.wr_id, expected);
    EXPECT_EQ(completion.byte_len, message_bytes);
    EXPECT_EQ(completion.qp_num, b.receiver->qp_num);
  }
  EXPECT_TRUE(b.second->memory.holds(10, 0, message_bytes));
  EXPECT_EQ(std::memcmp(b.first->memory.bytes().data() + message_bytes, a.source->bytes().data(),
                        message_bytes),
            0);
}

TEST_P(Xrc, ImmediatesAndBothDirections) {
  connect();
  b.first->post(1);
  a.first->post(2);
  auto work = a.request(3, b.first->number);
  work.opcode = IBV_WR_SEND_WITH_IMM;
  work.imm_data = 0x12345678;
  ASSERT_EQ(a.post(work), 0);
  ASSERT_EQ(b.post(b.request(4, a.first->number)), 0);
  const ibv_wc received = await(b.receives);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0U);
  EXPECT_EQ(received.imm_data, 0x12345678U);
  EXPECT_EQ(await(a.receives).wr_id, 2U);
  EXPECT_EQ(await(a.sends).status, IBV_WC_SUCCESS);
  EXPECT_EQ(await(b.sends).status, IBV_WC_SUCCESS);
}

// Of the two messages that are held the second one belongs to a queue with a receive. It waits all
// the same, as behind a receiver-not-ready NAK.
TEST_P(Xrc, MessagesWaitForReceivesOfTheirOwnQueues) {
  connect();
  b.second->post(2);
  ASSERT_EQ(a.post(a.request(10, b.first->number)), 0);
  ASSERT_EQ(a.post(a.request(11, b.second->number)), 0);
  ASSERT_EQ(a.post(a.request(12, b.first->number)), 0);
  b.first->post(1);
  b.first->post(3, 1);
  for (const std::uint64_t expected : {1, 2, 3}) {
    const ibv_wc completion = await(b.receives);
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.wr_id, expected);
  }
  for (const std::uint64_t expected : {10, 11, 12}) EXPECT_EQ(await(a.sends).wr_id, expected);
}

// More than the receiver holds: it is asked for a receive of the right queue first.
TEST_P(Xrc, AMessageBeyondTheHoldIsGrantedByItsQueue) {
  connect();
  const std::size_t bytes = 2 * 1024 * 1024;
  Buffer large(b.context, *b.second->domain, bytes, all_access);
  a.source->fill(3);
  b.first->post(1);
  ASSERT_EQ(a.post(a.request(10, b.second->number), bytes), 0);
  ibv_sge slice = large.sge(0, bytes);
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  request.wr_id = 2;
  request.sg_list = &slice;
  request.num_sge = 1;
  ASSERT_EQ(ibv_post_srq_recv(b.second->queue, &request, &bad), 0);
  const ibv_wc completion = await(b.receives);
  EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(completion.wr_id, 2U);
  EXPECT_TRUE(large.holds(3, 0, bytes));
  EXPECT_EQ(await(a.sends).status, IBV_WC_SUCCESS);
}

TEST_P(Xrc, AnUnknownQueueIsAnInvalidRequest) {
  connect();
  b.first->post(1);
  ASSERT_EQ(a.post(a.request(10, b.first->number)), 0);
  ASSERT_EQ(a.post(a.request(11, b.first->number ^ 1)), 0);
  ASSERT_EQ(a.post(a.request(12, b.first->number)), 0);
  EXPECT_EQ(await(a.sends).status, IBV_WC_SUCCESS);
  const ibv_wc failed = await(a.sends);
  EXPECT_EQ(failed.status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(failed.wr_id, 11U);
  EXPECT_EQ(await(a.sends).status, IBV_WC_WR_FLUSH_ERR);
  ibv_async_event event{};
  ASSERT_EQ(b.context.next_event(event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(event.element.qp, b.receiver);
  b.context.acknowledge(event);
}

TEST_P(Xrc, ADestroyedQueueIsAnInvalidRequest) {
  connect();
  b.first->post(1);
  ASSERT_EQ(a.post(a.request(10, b.first->number)), 0);
  EXPECT_EQ(await(a.sends).status, IBV_WC_SUCCESS);
  EXPECT_EQ(await(b.receives).status, IBV_WC_SUCCESS);
  const std::uint32_t number = b.first->number;
  b.first->destroy();
  ASSERT_EQ(a.post(a.request(11, number)), 0);
  EXPECT_EQ(await(a.sends).status, IBV_WC_REM_INV_REQ_ERR);
}

// The region is still registered, and the peer need not name the queue again.
TEST_P(Xrc, ADestroyedQueueGrantsNoMemory) {
  connect();
  a.source->fill(5);
  auto work = a.request(10, b.first->number);
  work.opcode = IBV_WR_RDMA_WRITE;
  work.wr.rdma = {b.first->memory.address(), b.first->memory.rkey()};
  ASSERT_EQ(a.post(work), 0);
  EXPECT_EQ(await(a.sends).status, IBV_WC_SUCCESS);
  b.first->destroy();
  a.source->fill(6);
  work.wr_id = 11;
  ASSERT_EQ(a.post(work), 0);
  EXPECT_EQ(await(a.sends).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(b.first->memory.holds(5, 0, message_bytes));
}

// InfiniBand checks the protection domain of the queue that the request names.
TEST_P(Xrc, MemoryIsThatOfTheDomainOfTheNamedQueue) {
  connect();
  a.source->fill(5);
  auto work = a.request(10, b.first->number);
  work.opcode = IBV_WR_RDMA_WRITE;
  work.wr.rdma = {b.first->memory.address(), b.first->memory.rkey()};
  ASSERT_EQ(a.post(work), 0);
  EXPECT_EQ(await(a.sends).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(b.first->memory.holds(5, 0, message_bytes));
  work.wr_id = 11;
  work.qp_type.xrc.remote_srqn = b.second->number;
  ASSERT_EQ(a.post(work), 0);
  EXPECT_EQ(await(a.sends).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(Xrc, WithoutAReceiveTheRetriesEnd) {
  connect(1);
  ASSERT_EQ(a.post(a.request(10, b.first->number)), 0);
  EXPECT_EQ(await(a.sends).status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_P(Xrc, BatchesNameTheirQueue) {
  connect();
  b.first->post(1);
  b.second->post(2);
  ibv_qp_ex* const batch = QueuePair::of(a.sender)->extended();
  const ibv_sge slice = a.source->sge(0, 64);
  ibv_wr_start(batch);
  for (const Inbox* to : {b.first.get(), b.second.get()}) {
    batch->wr_id = 20;
    batch->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_imm(batch, to->number);
    ibv_wr_set_xrc_srqn(batch, to->number);
    ibv_wr_set_sge(batch, slice.lkey, slice.addr, slice.length);
  }
  ASSERT_EQ(ibv_wr_complete(batch), 0);
  EXPECT_EQ(await(b.receives).wr_id, 1U);
  const ibv_wc second = await(b.receives);
  EXPECT_EQ(second.wr_id, 2U);
  EXPECT_EQ(second.imm_data, b.second->number);
}

TEST_P(Xrc, EndsHaveNoQueuesOfTheirOwn) {
  connect();
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(ibv_post_recv(b.receiver, &receive, &bad_receive), EINVAL);
  EXPECT_EQ(ibv_post_recv(b.sender, &receive, &bad_receive), EINVAL);
  ibv_send_wr send = a.request(1, b.first->number);
  ibv_send_wr* bad_send = nullptr;
  EXPECT_EQ(ibv_post_send(a.receiver, &send, &bad_send), EINVAL);
}

// The peer must be the other end of XRC, and not a plain queue pair.
TEST_P(Xrc, APlainQueuePairIsNoPeer) {
  RawEnd plain(*device_b);
  ibv_gid gid{};
  ASSERT_EQ(query_gid(a.context, 1, 0, gid), 0);
  EXPECT_EQ(plain.to_init(), 0);
  EXPECT_EQ(plain.to_rtr(gid, a.sender->qp_num), 0);
  EXPECT_EQ(plain.to_rts(), 0);
  Program::to_rts(a.sender, gid, plain.number(), 7);
  ASSERT_EQ(a.post(a.request(10, b.first->number)), 0);
  EXPECT_EQ(await(a.sends).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_P(Xrc, AHandleOutlivesThatOfTheCreator) {
  ibv_qp_open_attr attributes{};
  attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attributes.qp_num = b.receiver->qp_num;
  attributes.xrcd = b.xrc;
  attributes.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* more = ibv_open_qp(b.context.verbs(), &attributes);
  ASSERT_NE(more, nullptr);
  EXPECT_EQ(more->qp_num, b.receiver->qp_num);
  connect();
  Program::destroy(b.receiver);
  EXPECT_EQ(ibv_close_xrcd(b.xrc), EBUSY);
  b.first->post(1);
  ASSERT_EQ(a.post(a.request(10, b.first->number)), 0);
  EXPECT_EQ(await(b.receives).wr_id, 1U);
  Program::destroy(more);
  attributes.qp_num = a.sender->qp_num;
  EXPECT_EQ(ibv_open_qp(b.context.verbs(), &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

INSTANTIATE_TEST_SUITE_P(Personalities, Xrc, ::testing::Bool(),
                         [](const auto& personality) { return personality.param ? "ib" : "roce"; });

// ibv_open_xrcd(3), with the errors of Linux.
TEST(XrcDomain, OneFileIsOneDomain) {
  const auto device = make_roce_device();
  Context context(*device);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  const int fd = fileno(file.get());
  EXPECT_EQ(open_domain(context, fd, 0), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  ibv_xrcd* const first = open_domain(context, fd, O_CREAT | O_EXCL);
  ASSERT_NE(first, nullptr);
  ibv_xrcd* const second = open_domain(context, fd, 0);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(XrcHandle::of(first)->domain, XrcHandle::of(second)->domain);
  EXPECT_EQ(open_domain(context, fd, O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  EXPECT_EQ(ibv_close_xrcd(second), 0);
  EXPECT_EQ(open_domain(context, fd, 0), nullptr);
  EXPECT_EQ(open_domain(context, -1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(open_domain(context, 1'000'000, O_CREAT), nullptr);
  EXPECT_EQ(errno, EBADF);
}

TEST(XrcDomain, TagMatchingIsRefused) {
  const auto device = make_roce_device();
  Context context(*device);
  ibv_srq_init_attr_ex attributes{};
  attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_TM;
  attributes.srq_type = IBV_SRQT_TM;
  EXPECT_EQ(create_shared_queue(context, attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST(XrcDomain, AnIwarpDeviceHasNone) {
  Settings settings;
  settings.personality = Personality::iwarp;
  settings.address = "127.0.0.1";
  const auto device = Device::create(settings);
  ASSERT_TRUE(device);
  Context context(**device);
  EXPECT_EQ(open_domain(context), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_device_attr attributes{};
  query_device(context, attributes);
  EXPECT_EQ(attributes.device_cap_flags & IBV_DEVICE_XRC, 0U);
}

}  // namespace
}  // namespace weft::device
