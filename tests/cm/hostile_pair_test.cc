// A process of the same user that breaks the rules of a pair of processes. The device must neither
// end nor hang, and must serve others as before.
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cm/hostile_fixture.h"

namespace weft::cm {
namespace {

using device::pair_message::Answer;
using device::pair_message::Header;
using device::pair_message::Kind;

TEST_F(HostilePair, AnAcceptingFrameInAnotherAnswerIsNoConnection) {
  for (const std::uint32_t answer : {1U, 2U, 3U, 4U, 5U, 77U, 0xFFFFFFFFU}) {
    SCOPED_TRACE(answer);
    HostileEnd end = HostileEnd::that_serves(*device_, address());
    std::optional<HostileEnd::Message> request;
    rdma_cm_id* const client = ask(end, request);
    ASSERT_TRUE(request);
    Header header;
    header.kind = Kind::reply;
    header.number = request->header.number;
    header.answer = static_cast<Answer>(answer);
    const auto frame = HostileEnd::reply_to(request->frame, true);
    header.frame_bytes = static_cast<std::uint32_t>(frame.size());
    end.send(header, frame);
    EXPECT_NE(await_client(), RDMA_CM_EVENT_ESTABLISHED);
    destroy(client);
  }
  expect_service();
}

// A file that is no socket takes the place of one.
TEST_F(HostilePair, AFileIsNoStream) {
  {
    HostileEnd end = HostileEnd::that_serves(*device_, address());
    std::optional<HostileEnd::Message> request;
    rdma_cm_id* const client = ask(end, request);
    ASSERT_TRUE(request);
    HostileEnd::Whole reply = end.acceptance(*context_, *request);
    reply.header.answer = Answer::as_stream;
    end.send(reply.header, reply.frame, reply.files);
    (void)await_client();
    destroy(client);
  }
  expect_service();
}

// Each is a rule that only the serving side can break, once it has accepted.
TEST_F(HostilePair, AConnectionIsAnsweredOnce) {
  using Step = std::function<void(HostileEnd&, HostileEnd::Whole)>;
  const auto again = [](Answer answer) {
    return [answer](HostileEnd& end, HostileEnd::Whole reply) {
      reply.header.answer = answer;
      end.send(reply.header, reply.frame, reply.files);
    };
  };
  const auto cancelled = [](HostileEnd& end, HostileEnd::Whole reply) {
    reply.header.kind = Kind::cancel;
    end.send(reply.header, reply.frame);
  };
  const auto after_cancel = [&](Answer answer) {
    return [=](HostileEnd& end, const HostileEnd::Whole& reply) {
      cancelled(end, reply);
      again(answer)(end, reply);
    };
  };
  for (const Step& step :
       std::array<Step, 5>{again(Answer::accepted), again(Answer::refused), cancelled,
                           after_cancel(Answer::refused), after_cancel(Answer::accepted)}) {
    HostileEnd end = HostileEnd::that_serves(*device_, address());
    std::optional<HostileEnd::Message> request;
    rdma_cm_id* const client = ask(end, request);
    ASSERT_TRUE(request);
    const HostileEnd::Whole reply = end.acceptance(*context_, *request);
    end.send(reply.header, reply.frame, reply.files);
    EXPECT_EQ(await_client(), RDMA_CM_EVENT_ESTABLISHED);
    step(end, reply);
    EXPECT_EQ(await_client(), RDMA_CM_EVENT_DISCONNECTED);
    destroy(client);
  }
  EXPECT_EQ(device_->refusals().local_violations, 5U);
  expect_service();
}

// What is wrong with a request, one thing at a time.
TEST_F(HostilePair, AWrongRequestIsRefused) {
  using Change = std::function<void(HostileEnd::Whole&)>;
  std::vector<Change> changes{
      Change([](auto& whole) { whole.header.number = device::PairBells::most_connections; }),
      Change([](auto& whole) { whole.header.number = 0xFFFFFFFF; }),
      Change([](auto& whole) { whole.header.kind = Kind::reply; }),
      Change([](auto& whole) { whole.header.kind = static_cast<Kind>(77); }),
      Change([](auto& whole) { ++whole.header.frame_bytes; }),
      Change([](auto& whole) { whole.header.inbox.receives = 0; }),
      Change([](auto& whole) { whole.header.inbox.receives = 3; }),
      Change([](auto& whole) { whole.header.inbox.receives = 1U << 31; }),
      Change([](auto& whole) { whole.header.inbox.receives = 4096; }),
      Change([](auto& whole) { whole.header.inbox.count = 0; }),
      Change([](auto& whole) { whole.header.inbox.count = 0xFFFFFFFF; }),
      Change([](auto& whole) { whole.header.inbox.index = 1; }),
      Change([](auto& whole) { whole.header.inbox.index = 0xFFFFFFFF; }),
      Change([](auto& whole) { whole.header.files.inboxes = 0; }),
      Change([](auto& whole) { std::swap(whole.files[0], whole.files[1]); }),
      Change([](auto& whole) { whole.files.clear(); }),
      Change([](auto& whole) { whole.files.assign(3, 0); }),
      Change([](auto& whole) { whole.header.source.ss_family = 77; }),
      Change([](auto& whole) { whole.header.destination.ss_family = AF_UNIX; }),
      Change([](auto& whole) { whole.frame.clear(), whole.header.frame_bytes = 0; }),
      Change([](auto& whole) { whole.frame[0] ^= std::byte{1}; }),
  };
  // In a staged connection the number of the process is not used where /proc does not prove it.
  if (settings_.same_host != device::SameHost::staged) {
    changes.emplace_back([](auto& whole) { ++whole.header.mark.number; });
    changes.emplace_back([](auto& whole) { whole.header.mark.address = 8; });
  }
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    HostileEnd end = HostileEnd::that_dials(*device_);
    HostileEnd::Whole whole = end.request(*context_, target());
    changes[i](whole);
    const std::uint64_t before = counted();
    end.send(whole.header, whole.frame, whole.files);
    const auto answer = end.await();
    if (answer) {
      EXPECT_NE(answer->header.answer, Answer::accepted);
    }
    EXPECT_EQ(counted(), before + 1);
    EXPECT_TRUE(quiet(strangers_));
  }
  expect_service();
}

TEST_F(HostilePair, ANumberServesOneConnectionAtATime) {
  HostileEnd end = HostileEnd::that_dials(*device_);
  const HostileEnd::Whole whole = end.request(*context_, target());
  end.send(whole.header, whole.frame, whole.files);
  rdma_cm_id* const server = expect(strangers_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  make_queue_pair(server);
  rdma_conn_param parameters{};
  ASSERT_EQ(manager_->accept(server, &parameters), 0);
  const auto answer = end.await();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.answer, Answer::accepted);
  end.send(whole.header, whole.frame, whole.files);
  // The pair ends, and with it the connection that the other end has never confirmed.
  expect(strangers_, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
  destroy(server);
  EXPECT_FALSE(end.await());
  EXPECT_EQ(device_->refusals().local_violations, 1U);
  expect_service();
}

// A request where nothing listens, and one with more files than a process may have here.
TEST_F(HostilePair, RequestsThatAreNotServedAreCounted) {
  HostileEnd end = HostileEnd::that_dials(*device_);
  sockaddr_storage nothing_listens = target();
  device::set_port(nothing_listens, 1);
  const HostileEnd::Whole lost = end.request(*context_, nothing_listens);
  end.send(lost.header, lost.frame, lost.files);
  auto answer = end.await();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.answer, Answer::not_serving);
  EXPECT_EQ(device_->refusals().local_refused, 1U);
  // The first file is that of the request above.
  constexpr std::uint32_t most_files = 2048;
  for (std::uint32_t file = 1; file <= most_files; ++file) {
    HostileEnd::Whole whole = end.request(*context_, nothing_listens);
    whole.header.inbox.file_number = 1000 + file;
    end.send(whole.header, whole.frame, whole.files);
    answer = end.await();
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->header.answer, file < most_files ? Answer::not_serving : Answer::lacking)
        << file;
  }
  EXPECT_EQ(device_->refusals().local_refused, 1U + most_files);
  EXPECT_EQ(device_->refusals().local_violations, 0U);
}

TEST_F(HostilePair, AnIntroductionWithoutItsFilesIsCounted) {
  device::LocalChannel::Message introduction;
  introduction.bytes.push_back(std::byte{3});
  introduction.descriptors.emplace_back(::dup(STDIN_FILENO));
  device_->process_pairs().introduced(::getpid(), std::move(introduction));
  EXPECT_EQ(device_->refusals().local_refused, 1U);
}

// Leaves one free descriptor for the time of a test.
class OneDescriptor {
 public:
  OneDescriptor() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const device::sys::Descriptor free(::dup(STDIN_FILENO));
    rlimit changed = before_;
    changed.rlim_cur = static_cast<rlim_t>(free.get()) + 1;
    setrlimit(RLIMIT_NOFILE, &changed);
  }
  ~OneDescriptor() { setrlimit(RLIMIT_NOFILE, &before_); }
  OneDescriptor(const OneDescriptor&) = delete;
  OneDescriptor& operator=(const OneDescriptor&) = delete;

 private:
  rlimit before_{};
};

// An acceptance has files, which cannot be kept until a peer that does not read has room for it.
TEST_F(HostilePair, APeerThatDoesNotReadIsRefusedWhereNoDescriptorIsLeft) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers need descriptors themselves";
#endif
  HostileEnd end = HostileEnd::that_dials(*device_);
  HostileEnd::Whole whole = end.request(*context_, target());
  HostileEnd::Whole wrong = whole;
  wrong.header.files = {};
  // More answers than its socket has room for.
  constexpr int most = 4000;
  const auto insist = [&](const HostileEnd::Whole& next, const std::vector<int>& files) {
    while (!end.try_send(next.header, next.frame, files)) {
      ASSERT_FALSE(end.is_closed());
      std::this_thread::yield();
    }
  };
  for (int i = 0; i < most; ++i) insist(wrong, {});
  insist(whole, whole.files);
  rdma_cm_id* const server = expect(strangers_, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  make_queue_pair(server);
  rdma_conn_param parameters{};
  {
    const OneDescriptor limit;  // for the file of the inbox
    ASSERT_EQ(manager_->accept(server, &parameters), 0);
    expect(strangers_, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET);
  }
  destroy(server);
  std::optional<HostileEnd::Message> last;
  for (int i = 0; i <= most; ++i) {
    last = end.await();
    ASSERT_TRUE(last) << i;
  }
  EXPECT_EQ(last->header.answer, Answer::refused);
  EXPECT_TRUE(last->files.empty());
  expect_service();
}

// More than its socket has room for. TCP would have no use: it is the same process that must
// answer.
TEST_F(HostilePair, RequestsWaitForAPeerThatDoesNotRead) {
  constexpr std::size_t many = 500;
  std::optional end = HostileEnd::that_serves(*device_, address());
  std::vector<rdma_cm_id*> clients;
  for (std::size_t i = 0; i < many; ++i) {
    clients.push_back(make_client(active_, listener_));
    auto attributes = queue_pair_attributes();
    // One queue for all, so that few descriptors are needed.
    attributes.send_cq = attributes.recv_cq = clients.front()->send_cq;
    ASSERT_EQ(manager_->create_qp(clients.back(), nullptr, &attributes), 0) << strerror(errno);
    rdma_conn_param parameters{};
    ASSERT_EQ(manager_->connect(clients.back(), &parameters), 0);
  }
  std::set<std::uint32_t> numbers;
  for (std::size_t i = 0; i < many; ++i) {
    const auto request = end->await();
    ASSERT_TRUE(request) << i;
    EXPECT_EQ(request->header.kind, Kind::connect);
    numbers.insert(request->header.number);
  }
  EXPECT_EQ(numbers.size(), many);
  for (; !clients.empty(); clients.pop_back()) destroy(clients.back());
  end.reset();
  expect_service();
}

// Any other number than 0 says that there is a file.
TEST_F(HostilePair, AFlagMayHaveAnyValue) {
  HostileEnd end = HostileEnd::that_dials(*device_);
  HostileEnd::Whole whole = end.request(*context_, target());
  whole.header.files = {.inboxes = 255, .context = 2, .memory = 3, .bell = 4, .stream = 5};
  end.send(whole.header, whole.frame, whole.files);
  serve_event(strangers_);
  const auto answer = end.await();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.answer, Answer::refused);
}

// Requests, and what is none, at random.
TEST_F(HostilePair, MessagesSayAnything) {
  for (const std::uint64_t seed : test::seeds(200)) {
    SCOPED_TRACE(test::seed_trace(seed));
    test::Random random(seed);
    HostileEnd end = HostileEnd::that_dials(*device_);
    for (int i = 0; i < 8 && !end.is_closed(); ++i) {
      HostileEnd::Whole whole = end.request(*context_, target());
      if (random.chance(3)) whole.header.kind = static_cast<Kind>(random.below(6));
      if (random.chance(2)) {
        auto* const bytes = reinterpret_cast<std::byte*>(&whole.header);
        bytes[random.below(sizeof whole.header)] = static_cast<std::byte>(random.next());
      }
      if (random.chance(4)) whole.files.resize(random.below(whole.files.size() + 1));
      end.send(whole.header, whole.frame, whole.files);
      end.bells(random.below(2)).words[random.below(8)].store(random.next());
      end.bells(1).summary[0].store(random.next());
      end.ring(static_cast<std::uint32_t>(random.below(10)));
      reject_strangers();
    }
  }
  reject_strangers();
  expect_service();
}

}  // namespace
}  // namespace weft::cm
