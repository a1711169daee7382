// Queue pairs that connect by GID and number.
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "device/connect/dialer.h"
#include "device/connect/slots.h"
#include "device/limits.h"
#include "device/query.h"
#include "device/raw_end.h"
#include "iwarp/handshake.h"
#include "wire/hello.h"

namespace weft::device {
namespace {

// Two devices, like those of two processes on one host.
class Pairs : public ::testing::Test {
 protected:
  std::unique_ptr<Device> left_ = make_roce_device();
  std::unique_ptr<Device> right_ = make_roce_device();
};

TEST_F(Pairs, ConnectWhicheverEndIsLate) {
  for (const bool first_is_lower : {true, false}) {
    RawEnd a(*left_);
    RawEnd b(*right_);
    const bool swapped = (a.number() < b.number()) != first_is_lower;
    RawEnd& early = swapped ? b : a;
    RawEnd& late = swapped ? a : b;
    early.connect(late);
    EXPECT_EQ(late.to_init(), 0);
    EXPECT_TRUE(early.stays_quiet());
    late.connect(early);
    pass_message(early, late);
    pass_message(late, early);
  }
}

TEST_F(Pairs, OneConnectionResultsWhereBothEndsDialAtOnce) {
  constexpr std::size_t pairs = 40;
  std::vector<std::unique_ptr<RawEnd>> ends;
  for (std::size_t i = 0; i < pairs; ++i) {
    ends.push_back(std::make_unique<RawEnd>(*left_));
    ends.push_back(std::make_unique<RawEnd>(*right_));
  }
  const auto connect_half = [&](std::size_t half) {
    for (std::size_t i = half; i < ends.size(); i += 2) ends[i]->connect(*ends[i ^ 1]);
  };
  std::thread other([&] { connect_half(1); });
  connect_half(0);
  other.join();
  for (std::size_t i = 0; i < ends.size(); ++i) pass_message(*ends[i], *ends[i ^ 1]);
  // No second connection has replaced a first one, which would have lost requests in flight.
  for (const auto& end : ends) EXPECT_EQ(end->state(), IBV_QPS_RTS);
}

// One end asks for all connections before the other one knows of any, and that begins with the
// last.
TEST_F(Pairs, MoreThanMayDialAtATimeConnect) {
  constexpr std::size_t pairs = limits::dials_within_host + 20;
  std::vector<std::unique_ptr<RawEnd>> left;
  std::vector<std::unique_ptr<RawEnd>> right;
  for (std::size_t i = 0; i < pairs; ++i) {
    left.push_back(std::make_unique<RawEnd>(*left_));
    right.push_back(std::make_unique<RawEnd>(*right_));
  }
  for (std::size_t i = 0; i < pairs; ++i) left[i]->connect(*right[i]);
  for (std::size_t i = pairs; i-- > 0;) right[i]->connect(*left[i]);
  for (std::size_t i = 0; i < pairs; ++i) pass_message(*left[i], *right[i]);
}

TEST_F(Pairs, TwoQueuePairsOfOneProcess) {
  RawEnd a(*left_);
  RawEnd b(*left_);
  a.connect(b);
  b.connect(a);
  pass_message(a, b);
  pass_message(b, a);
}

TEST_F(Pairs, AQueuePairConnectsToItself) {
  RawEnd end(*left_);
  end.connect(end);
  auto source = end.buffer(100'000);
  auto target = end.buffer(100'000);
  source->fill(3);
  ASSERT_EQ(end.write(1, {source->sge(0, 100'000)}, target->address(), target->rkey()), 0);
  EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(target->holds(3, 0, 100'000));
  source->fill(9);
  ASSERT_EQ(end.read(2, {target->sge(0, 100'000)}, source->address(), source->rkey()), 0);
  EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(target->holds(9, 0, 100'000));
  ASSERT_EQ(end.post_receive(3, {target->sge(0, 50)}), 0);
  ASSERT_EQ(end.send(4, {source->sge(100, 50)}), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(end.await().status, IBV_WC_SUCCESS);
}

// A server of one-sided operations stays in RTR and makes no further calls.
TEST_F(Pairs, ReadyToReceiveIsEnoughToServe) {
  RawEnd client(*left_);
  RawEnd server(*right_);
  ASSERT_EQ(server.to_init(), 0);
  ASSERT_EQ(server.to_rtr(client.gid(), client.number()), 0);
  client.connect(server);
  auto local = client.buffer(64);
  auto remote = server.buffer(64);
  local->fill(1);
  ASSERT_EQ(client.write(1, {local->sge(0, 64)}, remote->address(), remote->rkey()), 0);
  EXPECT_EQ(client.await().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(remote->holds(1, 0, 64));
  ASSERT_EQ(client.read(2, {local->sge(0, 64)}, remote->address(), remote->rkey()), 0);
  EXPECT_EQ(client.await().status, IBV_WC_SUCCESS);
  pass_message(client, server);
  EXPECT_EQ(server.state(), IBV_QPS_RTR);
  auto more = server.buffer(8);
  EXPECT_EQ(server.send(3, {more->sge(0, 8)}), EINVAL);
}

// Kernels with RoCE look the route up in ibv_modify_qp(3). From the loopback interface there is
// none to another network.
TEST_F(Pairs, AGidWithoutARouteIsRefused) {
  sockaddr_storage elsewhere{};
  ASSERT_TRUE(parse_address("198.51.100.7", elsewhere));
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    EndOptions options;
    options.type = type;
    RawEnd end(*left_, options);
    ASSERT_EQ(end.to_init(), 0);
    EXPECT_EQ(end.to_rtr(gid_of(elsewhere), 0x700001), ENETUNREACH);
    EXPECT_EQ(end.state(), IBV_QPS_INIT);
  }
}

// Programs that search for a RoCE v2 row find index 1; others take index 0.
TEST_F(Pairs, EveryRowOfTheGidTableConnects) {
  RawEnd a(*left_);
  RawEnd b(*right_);
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ibv_gid gid{};
  ASSERT_EQ(query_gid(b.context, 1, 1, gid), 0);
  EXPECT_EQ(query_gid(b.context, 1, 2, gid), EINVAL);
  ibv_qp_attr attributes = RawEnd::rtr_attributes(gid, b.number());
  attributes.ah_attr.grh.sgid_index = 1;
  ASSERT_EQ(a.queue_pair->modify(attributes, rtr_mask), 0);
  ASSERT_EQ(b.to_rtr(a.gid(), a.number()), 0);
  ASSERT_EQ(a.to_rts(), 0);
  ASSERT_EQ(b.to_rts(), 0);
  pass_message(a, b);
  pass_message(b, a);
  attributes.ah_attr.grh.sgid_index = 2;
  RawEnd beyond(*left_);
  ASSERT_EQ(beyond.to_init(), 0);
  EXPECT_EQ(beyond.queue_pair->modify(attributes, rtr_mask), EINVAL);
}

// Ends the process with status 0 if the steps are refused and the queue pair stays as it was.
[[noreturn]] void take_steps_without_gid(Device& device) {
  RawEnd end(device);
  int wrong = end.to_init();
  ibv_qp_attr attributes = RawEnd::rtr_attributes(end.gid(), end.number());
  attributes.ah_attr.is_global = 0;
  attributes.ah_attr.dlid = 1;
  for (int i = 0; i < 2; ++i) wrong |= end.queue_pair->modify(attributes, rtr_mask) ^ EINVAL;
  std::_Exit(wrong == 0 && end.state() == IBV_QPS_INIT ? 0 : 1);
}

// Programs for InfiniBand may know LIDs only, and some do not check what ibv_modify_qp(3) returns.
// The line is printed once for each process, so that this test has one of its own.
TEST_F(Pairs, AnAddressWithoutAGidIsRefusedWithTheRemedy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(take_steps_without_gid(*left_), ::testing::ExitedWithCode(0),
              "^weft: an address vector without a GID [^\n]*--personality ib[^\n]*\n$");
}

// Programs without rdma_cm would learn it only from the first ibv_post_send(3).
TEST(IwarpStates, AStepWithAnAddressIsRefusedBeforeThereIsAConnection) {
  Settings settings;
  settings.personality = Personality::iwarp;
  settings.address = "127.0.0.1";
  auto device = Device::create(settings);
  ASSERT_TRUE(device);
  RawEnd end(**device);
  ASSERT_EQ(end.to_init(), 0);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(end.to_rtr(end.gid(), 0x700001), EINVAL);
  EXPECT_EQ(end.to_rtr(end.gid(), 0x700001), EINVAL);
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("--personality roce"), std::string::npos) << line;
  EXPECT_NE(line.find("--personality ib"), std::string::npos) << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << "once for each process: " << line;
  EXPECT_EQ(end.state(), IBV_QPS_INIT);
  // What rdma_init_qp_attr(3) gives has no address: the connection comes with rdma_accept(3).
  EXPECT_EQ(end.to(IBV_QPS_RTR), 0);
  EXPECT_EQ(end.to_rts(), EINVAL);
  EXPECT_EQ(end.to(IBV_QPS_RTS), 0);
}

TEST_F(Pairs, WorkWaitsInOrderForALatePeer) {
  EndOptions options;
  options.send_requests = 3;
  RawEnd early(*left_, options);
  RawEnd late(*right_);
  early.connect(late);
  auto source = early.buffer(32);
  auto target = late.buffer(32);
  // Inline data may be overwritten as soon as the post has returned.
  source->fill(1);
  ASSERT_EQ(
      early.send(1, {source->sge(0, 16), source->sge(16, 16)}, IBV_SEND_SIGNALED | IBV_SEND_INLINE),
      0);
  source->fill(2);
  ASSERT_EQ(early.send(2, {source->sge(0, 32)}), 0);
  ASSERT_EQ(early.send(3, {source->sge(0, 1)}), 0);
  EXPECT_EQ(early.send(4, {source->sge(0, 1)}), ENOMEM);
  EXPECT_EQ(early.send(5, std::vector<ibv_sge>(9, source->sge(0, 1))), EINVAL);
  ASSERT_EQ(late.to_init(), 0);
  for (std::uint64_t i = 1; i <= 3; ++i) ASSERT_EQ(late.post_receive(i, {target->sge(0, 32)}), 0);
  ASSERT_EQ(late.to_rtr(early.gid(), early.number()), 0);
  EXPECT_EQ(late.await().byte_len, 32U);
  EXPECT_EQ(late.await().byte_len, 32U);
  EXPECT_EQ(late.await().byte_len, 1U);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const ibv_wc sent = early.await();
    EXPECT_EQ(sent.wr_id, i);
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  }
}

TEST_F(Pairs, InlineDataIsCopiedWhenItIsPosted) {
  RawEnd early(*left_);
  RawEnd late(*right_);
  early.connect(late);
  auto source = early.buffer(32);
  auto target = late.buffer(32);
  source->fill(1);
  ASSERT_EQ(early.send(1, {source->sge(0, 32)}, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
  source->fill(2);
  ASSERT_EQ(late.to_init(), 0);
  ASSERT_EQ(late.post_receive(1, {target->sge(0, 32)}), 0);
  ASSERT_EQ(late.to_rtr(early.gid(), early.number()), 0);
  EXPECT_EQ(late.await().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(target->holds(1, 0, 32));
}

TEST_F(Pairs, ReceiversSpeakAsSoonAsTheyAreReady) {
  // The accepting end must not send before the connecting end has sent; its requests wait for that.
  for (int turn = 0; turn < 20; ++turn) {
    RawEnd a(*left_);
    RawEnd b(*right_);
    a.connect(b);
    auto target = a.buffer(8);
    auto source = b.buffer(8);
    ASSERT_EQ(a.post_receive(1, {target->sge(0, 8)}), 0);
    b.connect(a);
    ASSERT_EQ(b.send(2, {source->sge(0, 8)}), 0);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
  }
}

TEST_F(Pairs, ConnectWithoutAThreadWhereBothPoll) {
  Settings settings;
  settings.address = "127.0.0.1";
  settings.progress.mode = ProgressMode::manual;
  auto made = Device::create(settings);
  ASSERT_TRUE(made.ok());
  RawEnd a(**made);
  RawEnd b(*right_);
  b.connect(a);
  a.connect(b);
  auto source = b.buffer(8);
  auto target = a.buffer(8);
  ASSERT_EQ(a.post_receive(1, {target->sge(0, 8)}), 0);
  ASSERT_EQ(b.send(2, {source->sge(0, 8)}), 0);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
}

// Without threads, so that every queue pair is there before the first of them dials.
std::unique_ptr<Device> make_device_without_thread() {
  Settings settings;
  settings.address = "127.0.0.1";
  settings.progress.mode = ProgressMode::manual;
  settings.min_retry_time_ns = 100'000'000;
  settings.same_host = SameHost::off;
  auto made = Device::create(settings);
  if (!made) throw std::runtime_error(made.error());
  return std::move(*made);
}

TEST(ManyPairs, AreNotTakenForAFlood) {
  const auto left = make_device_without_thread();
  const auto right = make_device_without_thread();
  // More than a listener takes from one address before the first of them makes its request.
  const std::size_t pairs =
      std::min(limits::max_half_open, sys::descriptor_limit() / limits::half_open_share) / 2 + 30;
  std::vector<std::unique_ptr<RawEnd>> ends;
  for (std::size_t i = 0; i < pairs; ++i) {
    ends.push_back(std::make_unique<RawEnd>(*left));
    ends.push_back(std::make_unique<RawEnd>(*right));
  }
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i]->connect(*ends[i ^ 1]);
  for (std::size_t i = 0; i < ends.size(); i += 2) ASSERT_EQ(ends[i]->write(1, {}, 0, 0), 0);
  std::size_t done = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (done < pairs && std::chrono::steady_clock::now() < end) {
    left->engine().poll();
    right->engine().poll();
    for (std::size_t i = 0; i < ends.size(); i += 2) {
      if (const auto completion = ends[i]->look()) {
        ASSERT_EQ(completion->status, IBV_WC_SUCCESS);
        ++done;
      }
    }
  }
  EXPECT_EQ(done, pairs);
  EXPECT_EQ(left->refusals().evicted + right->refusals().evicted, 0U);
}

// Two devices, of which the left one has the lower numbers, so that it asks the right one.
class BusyPeer : public ::testing::Test {
 protected:
  struct Ends {
    std::unique_ptr<RawEnd> lower;
    std::unique_ptr<RawEnd> higher;
  };
  void SetUp() override {
    const Ends ends = make_ends();
    if (ends.higher->number() < ends.lower->number()) std::swap(left_, right_);
  }
  Ends make_ends() { return {std::make_unique<RawEnd>(*left_), std::make_unique<RawEnd>(*right_)}; }
  ibv_wc await(RawEnd& end) {
    while (true) {
      left_->engine().poll();
      right_->engine().poll();
      if (const auto done = end.look()) return *done;
    }
  }
  void connect_two() {
    const Ends ends = make_ends();
    ends.higher->connect(*ends.lower);
    ends.lower->connect(*ends.higher);
    ASSERT_EQ(ends.lower->write(1, {}, 0, 0), 0);
    ASSERT_EQ(await(*ends.lower).status, IBV_WC_SUCCESS);
  }

  std::unique_ptr<Device> left_ = make_device_without_thread();
  std::unique_ptr<Device> right_ = make_device_without_thread();
};

// The end that waits for its peer to ask knows nothing of it while the peer asks for others.
TEST_F(BusyPeer, IsAskedBeforeWorkFails) {
  const Ends late = make_ends();
  ASSERT_EQ(late.lower->to_init(), 0);
  connect_two();
  late.higher->connect_briefly(*late.lower);
  ASSERT_EQ(late.higher->write(1, {}, 0, 0), 0);
  const auto end = std::chrono::steady_clock::now() +
                   2 * std::chrono::nanoseconds(right_->settings().min_retry_time_ns);
  while (std::chrono::steady_clock::now() < end) {
    connect_two();
    ASSERT_FALSE(late.higher->look());
  }
  late.lower->connect(*late.higher);
  EXPECT_EQ(await(*late.higher).status, IBV_WC_SUCCESS);
}

// A process that had no processor has not asked its peer, so it cannot know that it is silent.
TEST(UnservedPairs, DoNotCountTheTimeInWhichTheirProcessStoodStill) {
  const auto device = make_device_without_thread();
  RawEnd a(*device);
  RawEnd b(*device);
  a.connect_briefly(b);
  b.connect_briefly(a);
  ASSERT_EQ(a.write(1, {}, 0, 0), 0);
  ASSERT_EQ(b.write(2, {}, 0, 0), 0);
  // Nothing makes progress meanwhile.
  std::this_thread::sleep_for(2 * std::chrono::nanoseconds(device->settings().min_retry_time_ns));
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
}

TEST_F(Pairs, StatesAndAttributesAreThoseOfInfiniBand) {
  RawEnd end(*left_);
  EXPECT_EQ(end.state(), IBV_QPS_RESET);
  auto buffer = end.buffer(8);
  EXPECT_EQ(end.post_receive(1, {buffer->sge(0, 8)}), EINVAL);
  EXPECT_EQ(end.to(IBV_QPS_INIT), EINVAL) << "attributes are missing";
  ASSERT_EQ(end.to_init(), 0);
  EXPECT_EQ(end.post_receive(1, {buffer->sge(0, 8)}), 0);
  EXPECT_EQ(end.send(1, {buffer->sge(0, 8)}), EINVAL);

  const ibv_qp_attr good = RawEnd::rtr_attributes(end.gid(), end.number());
  const auto refused = [&](const auto& change) {
    ibv_qp_attr attributes = good;
    change(attributes);
    return end.queue_pair->modify(attributes, rtr_mask) == EINVAL;
  };
  EXPECT_TRUE(refused([](auto& a) { a.ah_attr.is_global = 0; }));
  EXPECT_TRUE(refused([](auto& a) { a.ah_attr.grh.sgid_index = 2; }));
  EXPECT_TRUE(refused([](auto& a) { a.ah_attr.grh.dgid = {}; }));
  EXPECT_TRUE(refused([](auto& a) { a.dest_qp_num = 1U << 24; }));
  EXPECT_TRUE(refused([](auto& a) { a.path_mtu = static_cast<ibv_mtu>(6); }));
  EXPECT_EQ(end.queue_pair->modify(good, rtr_mask & ~IBV_QP_AV), EINVAL);
  EXPECT_EQ(end.state(), IBV_QPS_INIT);
}

// --- Which requests are accepted
// ------------------------------------------------------------------

// A client that speaks the protocol but claims a false identity.
class Impostor : public Pairs {
 protected:
  wire::HelloAnswer ask(const std::string& from, std::uint32_t source_number,
                        std::uint32_t target_number) {
    const wire::Hello hello{
        .source_qpn = source_number, .destination_qpn = target_number, .generation = 0xFFFFFFFF};
    std::vector<std::byte> data(wire::Hello::bytes);
    hello.emit(data);
    return ask(from, target_number, std::move(data));
  }

  wire::HelloAnswer ask(const std::string& from, std::uint32_t target_number,
                        std::vector<std::byte> data) {
    Dialer::Plan plan;
    EXPECT_TRUE(parse_address(from, plan.source));
    EXPECT_TRUE(parse_address("127.0.0.1", plan.destination));
    set_port(plan.destination, slot::port_of(target_number));
    plan.handshake.ird = plan.handshake.ord = limits::max_wire_read_depth;
    plan.private_data = std::move(data);
    plan.connect_timeout_ns = plan.handshake_timeout_ns = limits::handshake_ns;
    plan.may_fall_back = false;
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Dialer::Outcome> outcome;
    const auto dialer =
        std::make_shared<Dialer>(*left_, std::move(plan), [&](Dialer::Outcome result) {
          const std::lock_guard lock(mutex);
          outcome = std::move(result);
          changed.notify_one();
        });
    dialer->start();
    std::unique_lock lock(mutex);
    // The handshake has a timeout of its own; with an answer this takes a moment.
    if (!changed.wait_for(lock, std::chrono::seconds(60), [&] { return outcome.has_value(); })) {
      ADD_FAILURE() << "the dialer reports nothing";
      std::abort();  // it would still use what this function owns
    }
    const auto answer = wire::Hello::parse(outcome->private_data);
    if (!answer) return wire::HelloAnswer::refused;
    EXPECT_EQ(outcome->rejected, answer->answer != wire::HelloAnswer::accepted);
    return answer->answer;
  }
};

TEST_F(Impostor, IsRefusedByAddressAndByNumber) {
  RawEnd target(*right_);
  RawEnd expected(*left_);
  EXPECT_EQ(ask("127.0.0.1", expected.number(), target.number()), wire::HelloAnswer::not_yet);
  ASSERT_EQ(target.to_init(), 0);
  EXPECT_EQ(ask("127.0.0.1", expected.number(), target.number()), wire::HelloAnswer::not_yet);
  ASSERT_EQ(target.to_rtr(expected.gid(), expected.number()), 0);
  EXPECT_EQ(ask("127.0.0.2", expected.number(), target.number()), wire::HelloAnswer::refused);
  EXPECT_EQ(ask("127.0.0.1", expected.number() + 1, target.number()), wire::HelloAnswer::refused);
  expected.connect(target);
  ASSERT_EQ(target.to_rts(), 0);
  pass_message(target, expected);
}

TEST_F(Impostor, DoesNotReplaceALivePairing) {
  RawEnd target(*right_);
  RawEnd expected(*left_);
  target.connect(expected);
  expected.connect(target);
  pass_message(target, expected);
  EXPECT_EQ(ask("127.0.0.1", expected.number(), target.number()), wire::HelloAnswer::refused);
  pass_message(target, expected);
}

TEST_F(Impostor, FindsNobodyBehindANumberThatWasNeverGiven) {
  RawEnd target(*right_);
  RawEnd other(*right_);
  RawEnd expected(*left_);
  ASSERT_EQ(other.to_init(), 0);
  ASSERT_EQ(other.to_rtr(expected.gid(), expected.number()), 0);
  EXPECT_EQ(ask("127.0.0.1", 17, (target.number() ^ 0x1555)), wire::HelloAnswer::refused);
  ASSERT_EQ(target.to_init(), 0);
  ASSERT_EQ(target.to(IBV_QPS_ERR), 0);
  EXPECT_EQ(ask("127.0.0.1", 17, target.number()), wire::HelloAnswer::refused);
}

// Numbers could be enumerated by what they are answered.
TEST_F(Impostor, FromAnUnexpectedAddressLearnsNothing) {
  RawEnd ready(*right_);
  RawEnd early(*right_);
  RawEnd expected(*left_);
  ASSERT_EQ(ready.to_init(), 0);
  ASSERT_EQ(ready.to_rtr(expected.gid(), expected.number()), 0);
  const auto learns_nothing = [&](wire::Hello hello) {
    for (const std::uint32_t number : {ready.number(), early.number(), ready.number() ^ 0x1555}) {
      hello.source_qpn = expected.number();
      hello.destination_qpn = number;
      std::vector<std::byte> data(wire::Hello::bytes);
      hello.emit(data);
      const std::uint64_t begin_ns = sys::now_ns();
      EXPECT_EQ(ask("127.0.0.2", number, data), wire::HelloAnswer::not_yet);
      EXPECT_GE(sys::now_ns() - begin_ns, limits::stranger_answer_ns);
    }
  };
  learns_nothing({});
  for (const std::uint32_t end : {wire::Hello::extended_sender, wire::Hello::extended_receiver}) {
    learns_nothing({.version = wire::Hello::extended_version, .capabilities = end});
  }
  EXPECT_EQ(right_->refusals().strangers, 9U);
}

// Only a queue pair on its way to RTR may still come to expect this peer: then the peer must ask
// again. Otherwise it must learn that it asks in vain, so that its work fails in time.
TEST_F(Impostor, IsRefusedWhereNoQueuePairCanExpectItAnyMore) {
  RawEnd failed(*right_);
  ASSERT_EQ(failed.to_init(), 0);
  EXPECT_EQ(ask("127.0.0.2", 17, failed.number()), wire::HelloAnswer::not_yet);
  ASSERT_EQ(failed.to(IBV_QPS_ERR), 0);
  EXPECT_EQ(ask("127.0.0.2", 17, failed.number()), wire::HelloAnswer::refused);
  ASSERT_EQ(failed.to(IBV_QPS_RESET), 0);
  EXPECT_EQ(ask("127.0.0.2", 17, failed.number()), wire::HelloAnswer::not_yet);
}

// The address and both numbers are no secret; the PSNs are.
TEST_F(Impostor, WithTheWrongPsnIsRefused) {
  RawEnd target(*right_);
  RawEnd expected(*left_);
  ASSERT_EQ(target.to_init(), 0);
  ASSERT_EQ(target.to_rtr(expected.gid(), expected.number()), 0);
  const auto ask_with = [&](std::uint32_t capabilities, std::uint32_t send, std::uint32_t receive) {
    std::vector<std::byte> data(wire::Hello::bytes);
    wire::Hello{.source_qpn = expected.number(),
                .destination_qpn = target.number(),
                .send_psn = send,
                .receive_psn = receive,
                .generation = 0xFFFFFFFF,
                .capabilities = capabilities}
        .emit(data);
    return ask("127.0.0.1", target.number(), data);
  };
  // In RTR the target knows what the peer sends from; its own PSN comes with RTS.
  EXPECT_EQ(ask_with(wire::Hello::has_send_psn, 1, 0), wire::HelloAnswer::refused);
  EXPECT_EQ(ask_with(0, 0, 0), wire::HelloAnswer::not_yet) << "nothing is proven";
  ASSERT_EQ(target.to_rts(), 0);
  EXPECT_EQ(ask_with(0, 0, 1), wire::HelloAnswer::refused);
  EXPECT_EQ(ask_with(wire::Hello::has_send_psn, 0, 1), wire::HelloAnswer::refused);
  EXPECT_EQ(right_->refusals().wrong_psn, 3U);
  // None of that keeps the peer out.
  expected.connect(target);
  pass_message(target, expected);
}

// Asks by a socket of this thread's user.
void expect_rejected(const wire::Hello& hello) {
  const sys::Descriptor fd(sys::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  ASSERT_TRUE(parse_address("127.0.0.1", address));
  set_port(address, slot::port_of(hello.destination_qpn));
  ASSERT_EQ(sys::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length_of(address)), 0);
  std::vector<std::byte> data(wire::Hello::bytes);
  hello.emit(data);
  iwarp::ActiveHandshake handshake({}, data);
  const Bytes request = handshake.output();
  ASSERT_EQ(sys::write(fd.get(), request.data(), request.size()),
            static_cast<std::ptrdiff_t>(request.size()));
  while (const std::size_t wanted = handshake.wanted_bytes()) {
    std::vector<std::byte> reply(wanted);
    const auto got = sys::read(fd.get(), reply.data(), reply.size());
    ASSERT_GT(got, 0);
    handshake.input(Bytes(reply).first(static_cast<std::size_t>(got)));
  }
  EXPECT_TRUE(handshake.rejected());
}

// With the right address, numbers and PSNs.
TEST_F(Impostor, OfAnotherUserOfThisHostIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  RawEnd target(*right_);
  RawEnd expected(*left_);
  ASSERT_EQ(target.to_init(), 0);
  ASSERT_EQ(target.to_rtr(expected.gid(), expected.number()), 0);
  ASSERT_EQ(target.to_rts(), 0);
  // Sockets belong to the thread's user; the C library would change that of all threads.
  std::thread([&] {
    constexpr uid_t nobody = 65534;
    ASSERT_EQ(syscall(SYS_setresuid, nobody, nobody, nobody), 0);
    wire::Hello hello{.source_qpn = expected.number(),
                      .destination_qpn = target.number(),
                      .generation = 0xFFFFFFFF,
                      .capabilities = wire::Hello::has_send_psn};
    expect_rejected(hello);
    // As of an extended connection, whatever the queue pair is.
    hello.version = wire::Hello::extended_version;
    hello.capabilities |= wire::Hello::extended_sender;
    expect_rejected(hello);
  }).join();
  EXPECT_EQ(right_->refusals().other_user, 2U);
  expected.connect(target);
  pass_message(target, expected);
}

TEST_F(Impostor, WithAnotherVersionOrNoneIsTurnedDown) {
  RawEnd target(*right_);
  std::vector<std::byte> data(wire::Hello::bytes);
  wire::Hello{.version = 2, .source_qpn = 17, .destination_qpn = target.number()}.emit(data);
  EXPECT_EQ(ask("127.0.0.1", target.number(), data), wire::HelloAnswer::bad_version);
  EXPECT_EQ(ask("127.0.0.1", target.number(), std::vector<std::byte>(7)),
            wire::HelloAnswer::refused);
}

}  // namespace
}  // namespace weft::device
