// DeviceLimits: each member has an effect, and a value that is out of range is named.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::chrono::seconds timeout{60};

DeviceOptions with(const DeviceLimits& limits) {
  return {.address = "127.0.0.1", .same_host = DeviceOptions::SameHost::off, .limits = limits};
}

// A condition that the device's thread brings about.
bool comes_true(const std::function<bool()>& condition) {
  const Deadline deadline = timeout;
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

struct End {
  explicit End(const DeviceOptions& options)
      : context(open_own_device(options)),
        domain(context.create_domain()),
        queue(context.create_completion_queue(64)),
        region(domain.allocate<char>(4096, Access::all)) {}

  [[nodiscard]] PreparedQueuePair prepared() const {
    return domain.queue_pair(queue, queue).timeout(1).retry_count(0).rnr_retry(7).build();
  }
  // The TCP port at which peers ask for a queue pair: docs/security.md.
  [[nodiscard]] std::uint16_t port() {
    if (!asked) asked.emplace(prepared());
    return static_cast<std::uint16_t>(28672 + (asked->raw()->qp_num >> 14));
  }

  Context context;
  ProtectionDomain domain;
  CompletionQueue queue;
  TypedRegion<char> region;
  std::optional<PreparedQueuePair> asked;
};

// A stranger, who connects and says nothing or little.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Stranger& operator=(Stranger&&) = delete;
  ~Stranger() {
    if (fd_ >= 0) ::close(fd_);
  }
  void say(std::string_view text) const {
    EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }

 private:
  int fd_;
};

TEST(Limits, OfTheAdapterAreShown) {
  const auto shown = open_own_device(with({.max_qp = 11,
                                           .max_qp_wr = 12,
                                           .max_sge = 13,
                                           .max_cq = 14,
                                           .max_cqe = 15,
                                           .max_mr = 16,
                                           .max_mr_size = 1700,
                                           .max_mw = 18,
                                           .max_pd = 19,
                                           .max_srq = 20,
                                           .max_srq_wr = 21,
                                           .max_ah = 22,
                                           .max_qp_rd_atom = 23,
                                           .atomics = false}))
                         .query();
  EXPECT_EQ(shown.max_qp, 11);
  EXPECT_EQ(shown.max_qp_wr, 12);
  EXPECT_EQ(shown.max_sge, 13);
  EXPECT_EQ(shown.max_cq, 14);
  EXPECT_EQ(shown.max_cqe, 15);
  EXPECT_EQ(shown.max_mr, 16);
  EXPECT_EQ(shown.max_mr_size, 1700U);
  EXPECT_EQ(shown.max_mw, 18);
  EXPECT_EQ(shown.max_pd, 19);
  EXPECT_EQ(shown.max_srq, 20);
  EXPECT_EQ(shown.max_srq_wr, 21);
  EXPECT_EQ(shown.max_ah, 22);
  EXPECT_EQ(shown.max_qp_rd_atom, 23);
  EXPECT_EQ(shown.atomic_cap, IBV_ATOMIC_NONE);
}

TEST(Limits, OfTheAdapterAreKept) {
  const End small(with({.max_inline = 10, .max_mr = 1, .immediates = false}));
  EXPECT_THROW((void)small.domain.queue_pair(small.queue, small.queue).max_inline_bytes(11).build(),
               Error);
  EXPECT_THROW((void)small.domain.allocate<char>(64), Error) << "the second region";
  EXPECT_EQ(small.context.counters().beyond_limits, 2U);
  auto prepared = small.prepared();
  const auto own = prepared.endpoint();
  const auto itself = std::move(prepared).handshake(own);
  EXPECT_EQ(itself.post_send_with_immediate(LocalSlice(), 1, 1), EOPNOTSUPP);
}

TEST(Limits, TakePrecedenceOverTheText) {
  DeviceOptions options = with({.max_qp = 5});
  options.adapter = "max_qp=3,max_cq=4";
  const auto shown = open_own_device(options).query();
  EXPECT_EQ(shown.max_qp, 5);
  EXPECT_EQ(shown.max_cq, 4);
}

struct Wrong {
  const char* name;
  DeviceLimits limits;
  std::uint64_t limit;
};

TEST(Limits, OutOfRangeAreNamed) {
  const std::vector<Wrong> all{
      {"limits.max_qp", {.max_qp = 16385}, 16384},
      {"limits.max_qp_wr", {.max_qp_wr = 0}, 1},
      {"limits.max_sge", {.max_sge = 33}, 32},
      {"limits.max_inline", {.max_inline = 1025}, 1024},
      {"limits.max_cq", {.max_cq = 0}, 1},
      {"limits.max_cqe", {.max_cqe = 4194305}, 4194304},
      {"limits.max_mr", {.max_mr = 0}, 1},
      {"limits.max_mr_size", {.max_mr_size = 0}, 1},
      {"limits.max_mw", {.max_mw = 1048577}, 1048576},
      {"limits.max_pd", {.max_pd = 0}, 1},
      {"limits.max_srq", {.max_srq = 16385}, 16384},
      {"limits.max_srq_wr", {.max_srq_wr = 0}, 1},
      {"limits.max_ah", {.max_ah = 1048577}, 1048576},
      {"limits.max_qp_rd_atom", {.max_qp_rd_atom = 128}, 127},
      {"limits.half_open", {.half_open = 3}, 4},
      {"limits.refused", {.refused = 65537}, 65536},
      {"limits.first_byte", {.first_byte = 0ms}, 1},
      {"limits.handshake", {.handshake = 2h}, 3'600'000},
      {"limits.unanswered", {.unanswered = -1ms}, 1},
  };
  for (const Wrong& wrong : all) {
    for (const bool own : {true, false}) {
      try {
        if (own) {
          (void)open_own_device(with(wrong.limits));
        } else {
          configure(with(wrong.limits));
        }
        ADD_FAILURE() << wrong.name << " was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.error_number(), EINVAL);
        EXPECT_EQ(error.detail().attribute, wrong.name);
        EXPECT_EQ(error.detail().limit, wrong.limit) << wrong.name;
        EXPECT_THAT(error.what(), HasSubstr(wrong.name));
      }
    }
  }
}

TEST(Limits, OtherOptionsOutOfRangeAreNamed) {
  const auto wrong = [](const DeviceOptions& options) {
    try {
      (void)open_own_device(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.error_number(), EINVAL);
      return error.detail().attribute;
    }
    return std::string("nothing");
  };
  EXPECT_EQ(wrong({.address = "localhost"}), "address");
  EXPECT_EQ(wrong({.gids = static_cast<DeviceOptions::Gids>(9)}), "gids");
  EXPECT_EQ(wrong({.personality = static_cast<DeviceOptions::Personality>(3)}), "personality");
  EXPECT_EQ(wrong({.progress = static_cast<DeviceOptions::Progress>(3)}), "progress");
  EXPECT_EQ(wrong({.same_host = static_cast<DeviceOptions::SameHost>(4)}), "same_host");
  EXPECT_EQ(wrong({.faults = "no such rule"}), "faults");
  EXPECT_EQ(wrong({.adapter = "max_qp=none"}), "adapter");
  EXPECT_EQ(wrong({.link = "latency=soon"}), "link");
  EXPECT_EQ(wrong({.hold_bytes = (1U << 30) + 1}), "hold_bytes");
}

TEST(Limits, HalfOpenConnectionsMakeRoomForOthers) {
  End careful(with({.half_open = 4}));
  std::vector<Stranger> strangers;
  for (int i = 0; i < 6; ++i) strangers.emplace_back(careful.port());
  EXPECT_TRUE(comes_true([&] { return careful.context.counters().refusals.evicted > 0; }));
}

TEST(Limits, RequestsOfStrangersThatWaitAreBounded) {
  End careful(with({.refused = 4}));
  const End other(with({}));
  Endpoint nobody = [&] {
    const auto gone = careful.prepared();
    return gone.endpoint();
  }();
  (void)careful.port();
  std::vector<QueuePair> asking;
  for (int i = 0; i < 32; ++i) asking.push_back(other.prepared().handshake(nobody));
  EXPECT_TRUE(comes_true([&] { return careful.context.counters().refusals.answered_early > 0; }));
}

// If the limit had no effect, the patient device would have closed its stranger first.
TEST(Limits, TheFirstByteMayBeAwaitedForLongOrNot) {
  End patient(with({.first_byte = 1h, .handshake = 1h}));
  End hasty(with({.first_byte = 1ms}));
  const Stranger first(patient.port());
  const Stranger second(hasty.port());
  EXPECT_TRUE(comes_true([&] { return hasty.context.counters().refusals.timed_out == 1; }));
  EXPECT_EQ(patient.context.counters().refusals.timed_out, 0U);
}

TEST(Limits, AWholeRequestMayBeAwaitedForLongOrNot) {
  End patient(with({.handshake = 1h}));
  End hasty(with({.handshake = 1ms}));
  const Stranger first(patient.port());
  first.say("M");
  const Stranger second(hasty.port());
  second.say("M");
  EXPECT_TRUE(comes_true([&] { return hasty.context.counters().refusals.timed_out == 1; }));
  EXPECT_EQ(patient.context.counters().refusals.timed_out, 0U);
}

TEST(Limits, APeerThatDoesNotExistMayBeAwaitedForLongOrNot) {
  const End patient(with({.unanswered = 1h}));
  const End hasty(with({.unanswered = 1ms}));
  const End other(with({}));
  const Endpoint nobody = [&] {
    const auto gone = other.prepared();
    return gone.endpoint();
  }();
  const auto post = [&](const End& end) {
    auto connected = end.prepared().handshake(nobody);
    EXPECT_EQ(connected.post_send(end.region.slice(0, 8), 1), 0);
    return connected;
  };
  const auto first = post(patient);
  const auto second = post(hasty);
  std::array<Completion, 1> completions;
  const auto failed = hasty.queue.wait(completions, timeout);
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].status(), IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(patient.queue.poll(completions).empty());
}

TEST(Limits, TheHoldOfAConnectionBoundsSendsWithoutAReceive) {
  DeviceOptions options = with({});
  options.hold_bytes = 128;
  const End small(options);
  const End sender(with({}));
  auto at_receiver = small.prepared();
  auto at_sender = sender.prepared();
  const auto of_receiver = at_receiver.endpoint();
  const auto receives = std::move(at_receiver).handshake(at_sender.endpoint());
  const auto sends = std::move(at_sender).handshake(of_receiver);
  ASSERT_EQ(sends.post_send(sender.region.slice(0, 1000), 1), 0);
  EXPECT_TRUE(comes_true([&] { return sends.counters().credit_waits == 1; }));
  ASSERT_EQ(receives.post_receive(small.region.slice(), 2), 0);
  std::array<Completion, 1> completions;
  ASSERT_EQ(sender.queue.wait(completions, timeout).size(), 1U);
  EXPECT_TRUE(completions[0].ok());
}

}  // namespace
}  // namespace weft::verbs
