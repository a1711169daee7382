// Lists of datagrams, which leave and arrive by few system calls: their order, what fails within a
// list, and what one call of a socket takes.
#include "device/datagram/datagram_batch.h"

#include <cstring>
#include <string>
#include <vector>

#include "device/addresses.h"
#include "device/datagram/datagram_socket.h"
#include "device/datagram_end.h"

namespace weft::device {
namespace {

constexpr std::size_t size = grh_bytes + 4096;

EndOptions long_queues() {
  EndOptions options = datagram_options();
  options.send_requests = options.receive_requests = 128;
  return options;
}

class DatagramListTest : public ::testing::Test {
 protected:
  // Posts one list with messages of these sizes to `b`, from the beginning of `source`.
  int post_list(const std::vector<std::uint32_t>& sizes) {
    const auto handle = a.handle_for(b.gid());
    std::vector<ibv_sge> pieces;
    for (const std::uint32_t bytes : sizes) pieces.push_back(source->sge(0, bytes));
    std::vector<ibv_send_wr> requests(sizes.size(), DatagramEnd::plain());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].wr_id = i;
      requests[i].sg_list = &pieces[i];
      requests[i].num_sge = 1;
      requests[i].wr.ud = {handle->verbs(), b.number(), test_key};
      requests[i].next = i + 1 < requests.size() ? &requests[i + 1] : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    return a.queue_pair->post_send(requests.data(), &bad);
  }
  void expect_sent(std::uint64_t wr_id, ibv_wc_status status) {
    const ibv_wc sent = a.await();
    EXPECT_EQ(sent.wr_id, wr_id);
    EXPECT_EQ(sent.status, status) << wr_id;
  }
  void expect_arrived(std::uint64_t wr_id, std::uint32_t message_bytes) {
    const ibv_wc received = b.await();
    EXPECT_EQ(received.wr_id, wr_id);
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.byte_len, grh_bytes + message_bytes);
  }
  void post_receives(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(b.post_receive(i, {sink->sge(0, size)}), 0);
    }
  }

  std::unique_ptr<Device> left = make_roce_device();
  std::unique_ptr<Device> right = make_roce_device();
  DatagramEnd a{*left, test_key, long_queues()};
  DatagramEnd b{*right, test_key, long_queues()};
  std::unique_ptr<Buffer> source = a.buffer(size);
  std::unique_ptr<Buffer> sink = b.buffer(size);
};

// More than leave by one call, with every remainder of four.
TEST_F(DatagramListTest, ArrivesInTheOrderOfItsRequests) {
  source->fill(5);
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t i = 0; i < 3 * most_datagrams_of_a_call - 1; ++i) sizes.push_back(i);
  post_receives(sizes.size());
  ASSERT_EQ(post_list(sizes), 0);
  for (std::uint32_t i = 0; i < sizes.size(); ++i) expect_sent(i, IBV_WC_SUCCESS);
  for (std::uint32_t i = 0; i < sizes.size(); ++i) expect_arrived(i, i);
  EXPECT_EQ(std::memcmp(sink->bytes().data() + grh_bytes, source->bytes().data(), sizes.back()), 0);
  EXPECT_EQ(right->datagrams().counters().wrong_icrc, 0U);
}

// What is in front of a request that fails has left; what is behind it has not.
TEST_F(DatagramListTest, ARequestThatFailsStopsWhatIsBehindIt) {
  post_receives(4);
  ASSERT_EQ(post_list({10, 20, 4097, 30, 40}), 0);
  expect_sent(0, IBV_WC_SUCCESS);
  expect_sent(1, IBV_WC_SUCCESS);
  expect_sent(2, IBV_WC_LOC_LEN_ERR);
  expect_sent(3, IBV_WC_WR_FLUSH_ERR);
  expect_sent(4, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(a.state(), IBV_QPS_SQE);
  ASSERT_EQ(a.to(IBV_QPS_RTS), 0);
  ASSERT_EQ(post_list({50}), 0);
  expect_sent(0, IBV_WC_SUCCESS);
  expect_arrived(0, 10);
  expect_arrived(1, 20);
  expect_arrived(2, 50);
}

TEST_F(DatagramListTest, AListThatDoesNotFitIsPostedAsFarAsItFits) {
  post_receives(128);
  std::vector<std::uint32_t> sizes(130, 8);
  EXPECT_EQ(post_list(sizes), ENOMEM);
  for (std::uint32_t i = 0; i < 128; ++i) expect_sent(i, IBV_WC_SUCCESS);
  for (std::uint32_t i = 0; i < 128; ++i) expect_arrived(i, 8);
}

// --- One socket ----------------------------------------------------------------------------------

sockaddr_storage loopback() {
  sockaddr_storage address{};
  EXPECT_TRUE(parse_address("127.0.0.1", address));
  return address;
}

class DatagramBatchTest : public ::testing::Test {
 protected:
  DatagramBatchTest() {
    const DatagramSocket::Plan plan{
        .address = loopback(), .arrived = [this](const DatagramRoute&, Bytes packet) {
          arrived.emplace_back(reinterpret_cast<const char*>(packet.data()), packet.size());
        }};
    EXPECT_EQ(DatagramSocket::open(engine, plan, to), 0);
    EXPECT_EQ(DatagramSocket::open(engine, plan, from), 0);
    route.source = loopback();
    route.destination = to->address();
  }
  ~DatagramBatchTest() override {
    to->close();
    from->close();
  }
  OutgoingDatagram outgoing(DatagramRoute& way, const std::string& text) {
    return {&way, 0, as_bytes(std::span(text))};
  }
  // Packets of one sender stay in order, so that nothing of it is to come when the last one is
  // there.
  void await(const std::string& last) {
    while (arrived.empty() || arrived.back() != last) engine.poll();
  }

  Engine engine{ProgressMode::manual};
  std::vector<std::string> arrived;
  std::shared_ptr<DatagramSocket> to;
  std::shared_ptr<DatagramSocket> from;
  DatagramRoute route;
};

TEST_F(DatagramBatchTest, OneCallReceivesAllThatIsThere) {
  sys::Descriptor receiver(sys::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address = loopback();
  ASSERT_EQ(sys::bind(receiver.get(), reinterpret_cast<sockaddr*>(&address), length_of(address)),
            0);
  sys::local_address(receiver.get(), &route.destination);
  const std::string one = "one";
  const std::string two(5000, '2');  // longer than any packet of the device
  const std::string three;
  const std::vector<OutgoingDatagram> three_of_them{outgoing(route, one), outgoing(route, two),
                                                    outgoing(route, three)};
  ASSERT_EQ(from->send(three_of_them), 3U);
  InboundDatagrams inbound;
  ASSERT_EQ(inbound.receive(receiver.get(), 2), 2);
  EXPECT_EQ(inbound.packet(0).size(), one.size());
  EXPECT_EQ(inbound.packet(1).size(), datagram_packet_bytes(4096) + 1) << "cut off";
  EXPECT_EQ(port_of(inbound.route(0, address).source), port_of(from->address()));
  EXPECT_EQ(port_of(inbound.route(1, address).source), port_of(from->address()));
  ASSERT_EQ(inbound.receive(receiver.get(), most_datagrams_of_a_call), 1);
  EXPECT_EQ(inbound.packet(0).size(), 0U);
  EXPECT_EQ(port_of(inbound.route(0, address).source), port_of(from->address()));
  EXPECT_EQ(inbound.receive(receiver.get(), most_datagrams_of_a_call), -EAGAIN);
}

// The kernel refuses broadcasts without SO_BROADCAST. Datagrams are lost silently, and a lost one
// must not take others with it.
TEST_F(DatagramBatchTest, AnErrorOfOneDatagramLosesNoOther) {
  DatagramRoute nowhere = route;
  ASSERT_TRUE(parse_address("255.255.255.255", nowhere.destination));
  set_port(nowhere.destination, 9);
  const std::string texts[] = {"first", "lost", "lost too", "last"};
  const std::vector<OutgoingDatagram> four{outgoing(route, texts[0]), outgoing(nowhere, texts[1]),
                                           outgoing(nowhere, texts[2]), outgoing(route, texts[3])};
  EXPECT_EQ(from->send(four), 4U);
  await("last");
  EXPECT_EQ(arrived, (std::vector<std::string>{"first", "last"}));
}

TEST_F(DatagramBatchTest, MoreThanOneCallTakesStaysInOrder) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < 2 * most_datagrams_of_a_call + 3; ++i) {
    texts.push_back(std::to_string(i));
  }
  std::vector<OutgoingDatagram> many;
  for (const std::string& text : texts) many.push_back(outgoing(route, text));
  ASSERT_EQ(from->send(many), many.size());
  await(texts.back());
  EXPECT_EQ(arrived, texts);
}

}  // namespace
}  // namespace weft::device
