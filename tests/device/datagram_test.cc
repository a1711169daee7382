// Unreliable datagrams between queue pairs: which arrive, with which header in front, and which are
// dropped.
#include "device/datagram/datagrams.h"

#include <arpa/inet.h>

#include <cstring>

#include "device/addresses.h"
#include "device/connect/slots.h"
#include "device/datagram_end.h"
#include "device/query.h"

namespace weft::device {
namespace {

class DatagramTest : public ::testing::Test {
 protected:
  // Expects that the receive `wr_id` completes next on `end`.
  static ibv_wc expect_receive(DatagramEnd& end, std::uint64_t wr_id, std::uint32_t message_bytes) {
    const ibv_wc received = end.await();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.wr_id, wr_id);
    EXPECT_EQ(received.byte_len, grh_bytes + message_bytes);
    EXPECT_NE(received.wc_flags & IBV_WC_GRH, 0U);
    EXPECT_EQ(received.sl, 0xA) << "RoCE over UDP and IPv4";
    return received;
  }
  // Datagrams of one sender stay in order, so when this one has arrived, the earlier ones have been
  // handled.
  void expect_next_arrives() {
    source->fill(9);
    ASSERT_EQ(a.send_to(b, {source->sge(0, 33)}), 0);
    expect_receive(b, 1, 33);
    EXPECT_TRUE(same_message(33));
  }
  [[nodiscard]] bool same_message(std::size_t bytes) {
    return std::memcmp(sink->bytes().data() + grh_bytes, source->bytes().data(), bytes) == 0;
  }
  DatagramCounters& counters() { return right->datagrams().counters(); }

  static constexpr std::size_t size = grh_bytes + 4096;
  std::unique_ptr<Device> left = make_roce_device();
  std::unique_ptr<Device> right = make_roce_device();
  DatagramEnd a{*left};
  DatagramEnd b{*right};
  std::unique_ptr<Buffer> source = a.buffer(size);
  std::unique_ptr<Buffer> sink = b.buffer(size);
};

TEST_F(DatagramTest, EverySizeArrivesBehindItsHeader) {
  source->fill(3);
  for (const std::uint32_t bytes : {0U, 1U, 2U, 3U, 4U, 1000U, 4095U, 4096U}) {
    ASSERT_EQ(b.post_receive(5, {sink->sge(0, 10), sink->sge(10, size - 10)}), 0);
    ASSERT_EQ(a.send_to(b, {source->sge(0, bytes / 2), source->sge(bytes / 2, bytes - bytes / 2)}),
              0);
    const ibv_wc sent = a.await();
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    const ibv_wc received = expect_receive(b, 5, bytes);
    EXPECT_EQ(received.src_qp, a.number());
    EXPECT_EQ(received.qp_num, b.number());
    EXPECT_TRUE(same_message(bytes)) << bytes;
  }
  EXPECT_EQ(counters().wrong_icrc, 0U);
}

// RoCE v2 adapters place the IPv4 header in the last 20 of the 40 header bytes, directly before the
// message.
TEST_F(DatagramTest, TheHeaderNamesBothEnds) {
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, size)}), 0);
  ASSERT_EQ(a.send_to(b, {source->sge(0, 8)}), 0);
  expect_receive(b, 1, 8);
  const auto bytes = std::as_bytes(sink->bytes());
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(bytes[i], std::byte{0});
  const auto header = wire::Ipv4Header::parse(bytes.subspan(20));
  ASSERT_TRUE(header);
  EXPECT_TRUE(wire::ipv4_checksum_ok(bytes.subspan(20, 20)));
  const wire::Ipv4Address localhost{std::byte{127}, std::byte{0}, std::byte{0}, std::byte{1}};
  EXPECT_EQ(header->source, localhost);
  EXPECT_EQ(header->destination, localhost);
  EXPECT_EQ(header->protocol, wire::IpProtocol::udp);
  EXPECT_EQ(header->ttl, 64);
}

TEST_F(DatagramTest, TheReceiverCanAnswer) {
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, size)}), 0);
  ASSERT_EQ(a.send_to(b, {source->sge(0, 8)}), 0);
  const ibv_wc received = expect_receive(b, 1, 8);
  ibv_ah_attr attributes{};
  const auto* grh = reinterpret_cast<const ibv_grh*>(sink->bytes().data());
  ASSERT_EQ(address_of_sender(b.context, 1, received, grh, attributes), 0);
  EXPECT_EQ(attributes.is_global, 1);
  EXPECT_EQ(attributes.grh.sgid_index, 1) << "the row of RoCE v2";
  EXPECT_EQ(std::memcmp(&attributes.grh.dgid, a.gid().raw, sizeof(ibv_gid)), 0);
  auto answer = a.buffer(size);
  ASSERT_EQ(a.await().opcode, IBV_WC_SEND);
  ASSERT_EQ(a.post_receive(2, {answer->sge(0, size)}), 0);
  ASSERT_EQ(b.send_to(attributes.grh.dgid, received.src_qp, {sink->sge(0, 100)}), 0);
  expect_receive(a, 2, 100);

  ibv_wc plain = received;
  plain.wc_flags = 0;
  EXPECT_EQ(address_of_sender(b.context, 1, plain, grh, attributes), EINVAL);
  std::memset(sink->bytes().data(), 0xEE, grh_bytes);
  EXPECT_EQ(address_of_sender(b.context, 1, received, grh, attributes), EINVAL);
}

TEST_F(DatagramTest, CarriesAnImmediate) {
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, size)}), 0);
  ibv_send_wr request = DatagramEnd::plain();
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(0x12345678);
  ASSERT_EQ(a.send_to(b.gid(), b.number(), {source->sge(0, 5)}, test_key, request), 0);
  const ibv_wc received = expect_receive(b, 1, 5);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0U);
  EXPECT_EQ(received.imm_data, htonl(0x12345678));
}

TEST_F(DatagramTest, InlineDataMayChangeAtOnce) {
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, size)}), 0);
  ibv_send_wr request = DatagramEnd::plain();
  request.send_flags |= IBV_SEND_INLINE;
  std::uint64_t value = 0x0102030405060708;
  const ibv_sge slice{reinterpret_cast<std::uint64_t>(&value), sizeof value, 0};
  ASSERT_EQ(a.send_to(b.gid(), b.number(), {slice}, test_key, request), 0);
  value = 0;
  expect_receive(b, 1, 8);
  std::memcpy(&value, sink->bytes().data() + grh_bytes, sizeof value);
  EXPECT_EQ(value, 0x0102030405060708U);
  const ibv_sge large{source->address(), 65, 0};
  EXPECT_EQ(a.send_to(b.gid(), b.number(), {large}, test_key, request), EINVAL);
}

TEST_F(DatagramTest, WithoutAReceiveItIsDropped) {
  ASSERT_EQ(a.send_to(b, {source->sge(0, 8)}), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  while (counters().no_receive == 0) b.look();
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, size)}), 0);
  expect_next_arrives();
}

TEST_F(DatagramTest, AWrongKeyIsDroppedAndCounted) {
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, size)}), 0);
  ASSERT_EQ(a.send_to(b.gid(), b.number(), {source->sge(0, 8)}, test_key + 1), 0);
  expect_next_arrives();
  ibv_port_attr port{};
  ASSERT_EQ(query_port(b.context, 1, &port, sizeof port), 0);
  EXPECT_EQ(port.qkey_viol_cntr, 1U);
}

// A request cannot name a controlled Q_Key (highest bit set): such a value selects the sender's
// own.
TEST_F(DatagramTest, AControlledKeyStandsForTheSendersOwn) {
  constexpr std::uint32_t controlled = 0x80010000;
  DatagramEnd owner(*left, controlled);
  DatagramEnd guarded(*right, controlled);
  auto target = guarded.buffer(size);
  auto mine = owner.buffer(8);
  ASSERT_EQ(guarded.post_receive(1, {target->sge(0, size)}), 0);
  ASSERT_EQ(a.send_to(guarded.gid(), guarded.number(), {source->sge(0, 8)}, controlled), 0);
  ASSERT_EQ(a.await().status, IBV_WC_SUCCESS);
  ASSERT_EQ(owner.send_to(guarded.gid(), guarded.number(), {mine->sge(0, 4)}, 0xFFFFFFFF), 0);
  expect_receive(guarded, 1, 4);
  EXPECT_EQ(counters().wrong_queue_key, 1U);
}

TEST_F(DatagramTest, ATooLongMessageStopsTheSenderUntilItSaysSo) {
  auto large = a.buffer(5000);
  ASSERT_EQ(a.send_to(b, {large->sge(0, 4097)}), 0);
  EXPECT_EQ(a.await().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(a.state(), IBV_QPS_SQE);
  ASSERT_EQ(a.send_to(b, {source->sge(0, 8)}), 0);
  EXPECT_EQ(a.await().status, IBV_WC_WR_FLUSH_ERR);

  // A queue pair in the error state of the send queue still receives.
  auto target = a.buffer(size);
  auto text = b.buffer(8);
  ASSERT_EQ(a.post_receive(2, {target->sge(0, size)}), 0);
  ASSERT_EQ(b.send_to(a, {text->sge(0, 8)}), 0);
  expect_receive(a, 2, 8);
  EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);

  ASSERT_EQ(a.to(IBV_QPS_RTS), 0);
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, size)}), 0);
  expect_next_arrives();
}

TEST_F(DatagramTest, ABadKeyOfMemoryIsTheSendersFault) {
  ibv_sge wrong = source->sge(0, 8);
  wrong.lkey ^= 0xFF00;
  ASSERT_EQ(a.send_to(b, {wrong}), 0);
  EXPECT_EQ(a.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(a.state(), IBV_QPS_SQE);
}

TEST_F(DatagramTest, AReceiveWithoutRoomForTheHeaderFails) {
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, grh_bytes + 7)}), 0);
  ASSERT_EQ(b.post_receive(2, {sink->sge(0, size)}), 0);
  ASSERT_EQ(a.send_to(b, {source->sge(0, 8)}), 0);
  EXPECT_EQ(b.await().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(b.await().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(b.state(), IBV_QPS_ERR);
}

TEST_F(DatagramTest, ReceivesFromReadyToReceiveOn) {
  DatagramEnd early(*right);
  ASSERT_EQ(early.to(IBV_QPS_RESET), 0);
  ASSERT_EQ(early.to_datagram_init(test_key), 0);
  ASSERT_EQ(early.post_receive(1, {}), 0) << "in INIT";
  ASSERT_EQ(a.send_to(early, {source->sge(0, 1)}), 0);
  while (counters().no_queue_pair == 0) early.look();
  ASSERT_EQ(early.to(IBV_QPS_RESET), 0);
  ASSERT_EQ(early.to_datagram_init(test_key), 0);
  ASSERT_EQ(early.to(IBV_QPS_RTR), 0);
  auto target = early.buffer(size);
  ASSERT_EQ(early.post_receive(2, {target->sge(0, size)}), 0);
  ASSERT_EQ(a.send_to(early, {source->sge(0, 1)}), 0);
  expect_receive(early, 2, 1);
  EXPECT_EQ(early.send_to(b, {target->sge(0, 1)}), EINVAL) << "not in RTS yet";
}

TEST_F(DatagramTest, FromManyToOneAndToItself) {
  DatagramEnd other(*left);
  auto mine = b.buffer(8);
  auto theirs = other.buffer(8);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(b.post_receive(i, {sink->sge(0, size)}), 0);
  }
  ASSERT_EQ(a.send_to(b, {source->sge(0, 1)}), 0);
  EXPECT_EQ(expect_receive(b, 0, 1).src_qp, a.number());
  ASSERT_EQ(other.send_to(b, {theirs->sge(0, 2)}), 0);
  EXPECT_EQ(expect_receive(b, 1, 2).src_qp, other.number());
  ibv_send_wr silent = DatagramEnd::plain();
  silent.send_flags = 0;
  ASSERT_EQ(b.send_to(b.gid(), b.number(), {mine->sge(0, 3)}, test_key, silent), 0);
  EXPECT_EQ(expect_receive(b, 2, 3).src_qp, b.number());
}

TEST_F(DatagramTest, TakesFromASharedQueue) {
  DatagramEnd shared(*right, test_key, datagram_options(true));
  auto target = shared.buffer(size);
  ASSERT_EQ(shared.post_receive(4, {target->sge(0, size)}), 0);
  ASSERT_EQ(a.send_to(shared, {source->sge(0, 16)}), 0);
  expect_receive(shared, 4, 16);
}

TEST_F(DatagramTest, UnsignaledOnesKeepTheirPlacesUntilOneTells) {
  ibv_send_wr silent = DatagramEnd::plain();
  silent.send_flags = 0;
  for (int i = 0; i < 63; ++i) {
    ASSERT_EQ(a.send_to(b.gid(), b.number(), {source->sge(0, 1)}, test_key, silent), 0);
  }
  ASSERT_EQ(a.send_to(b, {source->sge(0, 1)}), 0);
  EXPECT_EQ(a.send_to(b, {source->sge(0, 1)}), ENOMEM);
  EXPECT_EQ(a.await().wr_id, 77U);
  for (int i = 0; i < 64; ++i) {
    ASSERT_EQ(a.send_to(b.gid(), b.number(), {source->sge(0, 1)}, test_key, silent), 0);
  }
}

TEST_F(DatagramTest, WhatADatagramCannotDoIsRefused) {
  for (const auto opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_SEND_WITH_INV}) {
    ibv_send_wr request = DatagramEnd::plain();
    request.opcode = opcode;
    EXPECT_EQ(a.send_to(b.gid(), b.number(), {}, test_key, request), EINVAL);
  }
  EXPECT_EQ(a.post(DatagramEnd::plain(), {}), EINVAL) << "no address";
}

TEST_F(DatagramTest, AnAddressNeedsAGidOfTheSameKind) {
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  EXPECT_EQ(AddressHandle::create(*a.domain, attributes), nullptr) << "no GID";
  EXPECT_EQ(errno, EINVAL);
  attributes.is_global = 1;
  EXPECT_EQ(AddressHandle::create(*a.domain, attributes), nullptr) << "no address";
  attributes.grh.dgid.raw[15] = 1;
  EXPECT_EQ(AddressHandle::create(*a.domain, attributes), nullptr) << "::1 from an IPv4 address";
  attributes.grh.dgid = b.gid();
  attributes.grh.sgid_index = 2;
  EXPECT_EQ(AddressHandle::create(*a.domain, attributes), nullptr) << "no such GID of ours";
  EXPECT_EQ(a.domain->users, 2) << "the queue pair and the buffer";
}

// Any process can send to the UDP port.
TEST_F(DatagramTest, NoiseTouchesNothing) {
  sys::Descriptor stranger(sys::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage to = address_of(b.gid());
  set_port(to, slot::port_of(b.number()));
  ASSERT_EQ(sys::connect(stranger.get(), reinterpret_cast<sockaddr*>(&to), length_of(to)), 0);
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, size)}), 0);
  std::vector<std::byte> noise(6000, std::byte{0x64});  // the opcode of a UD send
  std::uint64_t count = 0;
  for (const std::size_t bytes : {0U, 1U, 11U, 19U, 23U, 5000U, 6000U}) {
    iovec piece{noise.data(), bytes};
    ASSERT_EQ(sys::send(stranger.get(), {&piece, 1}), static_cast<std::ptrdiff_t>(bytes));
    while (counters().malformed < count + 1) b.look();
    ++count;
  }
  expect_next_arrives();
}

// A router that translates addresses changes fields that the ICRC covers.
TEST_F(DatagramTest, AWrongIcrcIsCountedAndTheMessageTaken) {
  sys::Descriptor stranger(sys::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  DatagramRoute route{.source = address_of(a.gid()), .destination = address_of(b.gid())};
  set_port(route.destination, slot::port_of(b.number()));
  sockaddr_storage& to = route.destination;
  ASSERT_EQ(sys::connect(stranger.get(), reinterpret_cast<sockaddr*>(&to), length_of(to)), 0);
  ASSERT_EQ(b.post_receive(1, {sink->sge(0, size)}), 0);
  wire::IbHeaders headers;
  headers.bth.opcode = {wire::IbTransport::ud, wire::IbOperation::send_only};
  headers.bth.destination_qp = b.number();
  headers.deth = {.queue_key = test_key, .source_qp = 0x1234};
  iovec message{source->bytes().data(), 12};
  auto packet = make_datagram(route, headers, {&message, 1});
  iovec piece{packet.data(), packet.size()};
  ASSERT_GT(sys::send(stranger.get(), {&piece, 1}), 0);
  EXPECT_EQ(expect_receive(b, 1, 12).src_qp, 0x1234U);
  EXPECT_EQ(counters().wrong_icrc, 1U) << "the port of the sender is not the one that it covers";
}

TEST_F(DatagramTest, AnArmedQueueWakes) {
  EndOptions options = datagram_options();
  options.channel = true;
  DatagramEnd sleeper(*right, test_key, options);
  auto target = sleeper.buffer(size);
  ASSERT_EQ(sleeper.post_receive(1, {target->sge(0, size)}), 0);
  ASSERT_EQ(ibv_req_notify_cq(sleeper.queue.verbs(), 1), 0) << "solicited only";
  ASSERT_EQ(a.send_to(sleeper, {source->sge(0, 1)}), 0);
  ASSERT_EQ(sleeper.post_receive(2, {target->sge(0, size)}), 0);
  ibv_send_wr request = DatagramEnd::plain();
  request.send_flags |= IBV_SEND_SOLICITED;
  ASSERT_EQ(a.send_to(sleeper.gid(), sleeper.number(), {source->sge(0, 2)}, test_key, request), 0);
  CompletionQueue* raised = nullptr;
  ASSERT_EQ(sleeper.channel->next(raised), 0);
  EXPECT_EQ(raised, &sleeper.queue);
  expect_receive(sleeper, 1, 1);
  expect_receive(sleeper, 2, 2);
  ibv_cq* cq = sleeper.queue.verbs();
  pthread_mutex_lock(&cq->mutex);
  ++cq->comp_events_completed;
  pthread_mutex_unlock(&cq->mutex);
}

}  // namespace
}  // namespace weft::device
