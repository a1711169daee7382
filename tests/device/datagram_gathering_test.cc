// Datagrams that are posted one by one and leave together (device/queue_pair/gathering.h).
#include <cstdint>
#include <thread>

#include "device/datagram_end.h"

namespace weft::device {
namespace {

constexpr std::size_t posts = 8;

std::unique_ptr<Device> make_device(ProgressMode mode) {
  Settings settings;
  settings.personality = Personality::roce;
  settings.address = "127.0.0.1";
  settings.progress.mode = mode;
  auto made = Device::create(settings);
  if (!made) throw std::runtime_error(made.error());
  return std::move(*made);
}

EndOptions with_channel() {
  EndOptions options = datagram_options();
  options.channel = true;
  return options;
}

// `a` sends and `b` receives.
template <ProgressMode mode>
class DatagramGathering : public testing::Test {
 protected:
  // Posts a byte for each number, one by one, after a poll.
  void post_all() {
    EXPECT_FALSE(a.look());
    const auto handle = a.handle_for(b.gid());
    for (std::size_t i = 0; i < posts; ++i) {
      ASSERT_EQ(b.post_receive(i, {sink->sge(i * size, size)}), 0);
      ibv_send_wr request = DatagramEnd::plain();
      request.wr_id = i;
      request.wr.ud = {handle->verbs(), b.number(), test_key};
      ASSERT_EQ(a.post(request, {source->sge(i, 1)}), 0);
    }
  }
  std::uint64_t completed() { return a.queue.counters().completions[IBV_WC_SUCCESS]; }
  void expect_sent() {
    for (std::size_t i = 0; i < posts; ++i) EXPECT_EQ(a.await().wr_id, i);
  }
  void expect_received() {
    for (std::size_t i = 0; i < posts; ++i) EXPECT_EQ(b.await().wr_id, i);
  }
  // A post waits only if it comes soon after the one before, which a busy machine may prevent. So
  // rounds are made until one has gathered.
  void gather() {
    const std::uint64_t end_ns = sys::now_ns() + 30'000'000'000;
    while (true) {
      const std::uint64_t before = completed();
      post_all();
      if (completed() < before + posts) return;
      expect_sent();
      expect_received();
      ASSERT_LT(sys::now_ns(), end_ns) << "no post has waited";
    }
  }

  static constexpr std::size_t size = grh_bytes + 1;
  std::unique_ptr<Device> left = make_device(mode);
  std::unique_ptr<Device> right = make_device(ProgressMode::automatic);
  DatagramEnd a{*left, test_key, with_channel()};
  DatagramEnd b{*right};
  std::unique_ptr<Buffer> source = a.buffer(posts);
  std::unique_ptr<Buffer> sink = b.buffer(posts * size);
};

// What is gathered waits for the next call of the program, however late that is.
using DatagramGatheringAlone = DatagramGathering<ProgressMode::manual>;

TEST_F(DatagramGatheringAlone, PostsLeaveWithTheNextPollInOrder) {
  gather();
  expect_sent();
  expect_received();
}

// An adapter would have sent them by then.
TEST_F(DatagramGatheringAlone, PostsLeaveBeforeTheQueuePairEnds) {
  for (const ibv_qp_state state : {IBV_QPS_ERR, IBV_QPS_RESET}) {
    gather();
    ASSERT_EQ(a.to(state), 0);
    expect_received();
    while (a.look()) continue;
    ASSERT_EQ(a.to(IBV_QPS_RESET), 0);
    ASSERT_EQ(a.to_datagram_init(test_key), 0);
    ASSERT_EQ(a.to(IBV_QPS_RTR), 0);
    ASSERT_EQ(a.to_datagram_rts(), 0);
  }
}

TEST_F(DatagramGatheringAlone, PostsLeaveBeforeTheQueueIsDrained) {
  gather();
  ASSERT_EQ(a.to(IBV_QPS_SQD), 0);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  a.queue_pair->query(attributes, initial);
  EXPECT_EQ(attributes.sq_draining, 0);
  expect_sent();
  expect_received();
  ASSERT_EQ(a.to(IBV_QPS_RTS), 0);
  post_all();
  expect_sent();
  expect_received();
}

// The program may sleep next. Sends do not disarm a queue that waits for solicited messages.
TEST_F(DatagramGatheringAlone, NothingWaitsWhereTheQueueIsArmed) {
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t before = completed();
    ASSERT_EQ(a.queue.request_notification(true), 0);
    post_all();
    EXPECT_EQ(completed(), before + posts);
    expect_sent();
    expect_received();
  }
}

// Those before it were sent, and those behind it are flushed.
TEST_F(DatagramGatheringAlone, ABadRequestStopsThoseBehindIt) {
  gather();
  const auto handle = a.handle_for(b.gid());
  ibv_send_wr request = DatagramEnd::plain();
  request.wr.ud = {handle->verbs(), b.number(), test_key};
  ibv_sge unknown = source->sge(0, 1);
  unknown.lkey ^= 1;
  ASSERT_EQ(a.post(request, {unknown}), 0);
  ASSERT_EQ(a.post(request, {source->sge(0, 1)}), 0);
  expect_sent();
  EXPECT_EQ(a.await().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(a.await().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(a.state(), IBV_QPS_SQE);
  expect_received();
}

using DatagramGatheringWithAThread = DatagramGathering<ProgressMode::automatic>;

TEST_F(DatagramGatheringWithAThread, PostsLeaveThoughTheProgramDoesNotPollAgain) {
  for (int round = 0; round < 10; ++round) {
    post_all();
    expect_received();
    expect_sent();
  }
}

}  // namespace
}  // namespace weft::device
