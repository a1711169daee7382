// What peers that were not let in can cost a process: descriptors, and the time of legitimate ones.
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <stop_token>
#include <string_view>
#include <thread>

#include "device/connect/slots.h"
#include "device/limits.h"
#include "device/raw_end.h"
#include "iwarp/handshake.h"
#include "support/own_figures.h"
#include "support/tcp_state.h"
#include "wire/hello.h"

namespace weft::device {
namespace {

using namespace std::chrono_literals;

// Sets the soft limit of descriptors for the time of a test.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t soft) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit changed = before_;
    changed.rlim_cur = soft;
    possible_ = soft <= before_.rlim_max && setrlimit(RLIMIT_NOFILE, &changed) == 0;
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

  [[nodiscard]] bool possible() const { return possible_; }

 private:
  rlimit before_{};
  bool possible_ = false;
};

class Strangers : public ::testing::Test {
 protected:
  static sockaddr_in address_of(RawEnd& target) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(slot::port_of(target.number()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  // A TCP connection to the port where `target` is found, from 127.0.0.`host`.
  static sys::Descriptor knock(RawEnd& target, std::uint32_t host = 1) {
    const sockaddr_in address = address_of(target);
    sockaddr_in source{};
    source.sin_family = AF_INET;
    source.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xFFU) | host);
    sys::Descriptor fd(sys::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* from = reinterpret_cast<const sockaddr*>(&source);
    const auto* to = reinterpret_cast<const sockaddr*>(&address);
    if (!fd.valid() || sys::bind(fd.get(), from, sizeof source) < 0 ||
        sys::connect(fd.get(), to, sizeof address) < 0) {
      fd.reset();
    }
    return fd;
  }

  // Whether the device has closed this connection, to which it has sent nothing.
  static bool is_closed(int fd) {
    std::byte none{};
    return ::recv(fd, &none, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN;
  }

  // How long a client takes to connect and to pass a message.
  std::chrono::nanoseconds time_of_a_client() {
    const auto begin = std::chrono::steady_clock::now();
    RawEnd client(*left_);
    RawEnd server(*right_);
    EXPECT_EQ(server.to_init(), 0);
    EXPECT_EQ(server.to_rtr(client.gid(), client.number()), 0);
    client.connect(server);
    pass_message(client, server);
    return std::chrono::steady_clock::now() - begin;
  }
  // The shortest first.
  std::vector<std::chrono::nanoseconds> times_of_clients(int count) {
    std::vector<std::chrono::nanoseconds> times;
    for (int i = 0; i < count && !HasFailure(); ++i) times.push_back(time_of_a_client());
    std::ranges::sort(times);
    return times;
  }
  static Settings patient_settings() {
    constexpr std::uint64_t hour_ns = 3'600'000'000'000;
    Settings settings;
    settings.personality = Personality::roce;
    settings.address = "127.0.0.1";
    settings.strangers.first_byte_ns = hour_ns;
    settings.strangers.handshake_ns = hour_ns;
    set_carrier(settings);
    return settings;
  }

  // Asks for a queue pair that does not exist.
  static void ask_for_nobody(int fd, std::uint32_t number) { ask_for(fd, number ^ 1); }
  static void ask_for(int fd, std::uint32_t number) {
    const wire::Hello hello{.source_qpn = 17, .destination_qpn = number};
    std::vector<std::byte> data(wire::Hello::bytes);
    hello.emit(data);
    iwarp::ActiveHandshake handshake({}, data);
    const Bytes request = handshake.output();
    sys::write(fd, request.data(), request.size());
  }

  // Waits until the condition is true; fails the test after half a minute.
  template <typename Condition>
  static void await(const Condition& condition) {
    const std::uint64_t end_ns = sys::now_ns() + 30'000'000'000;
    while (!condition() && sys::now_ns() < end_ns) std::this_thread::yield();
    EXPECT_TRUE(condition());
  }
  static void await_at_least(const Refusals::Count& count, std::uint64_t times) {
    await([&] { return count >= times; });
    EXPECT_GE(count, times);
  }
  // The device must have counted no more of them.
  static void await_count(const Refusals::Count& count, std::uint64_t times = 1) {
    await_at_least(count, times);
    EXPECT_EQ(count, times);
  }
  // Replaces right_.
  void make_right(const Settings& settings) {
    auto made = Device::create(settings);
    ASSERT_TRUE(made.ok()) << made.error();
    right_ = std::move(*made);
  }
  // Makes 127.0.0.1 a peer that `target` expects.
  void expect_loopback(RawEnd& target) {
    RawEnd expected(*left_);
    ASSERT_EQ(target.to_init(), 0);
    ASSERT_EQ(target.to_rtr(expected.gid(), expected.number()), 0);
  }

  std::unique_ptr<Device> left_ = make_roce_device();
  std::unique_ptr<Device> right_ = make_roce_device();
};

TEST_F(Strangers, WhoWereRefusedTakeFewDescriptors) {
  constexpr std::size_t strangers = 400;
  constexpr rlim_t limit = 1024;
  const DescriptorLimit descriptor_limit(limit);
  if (!descriptor_limit.possible()) GTEST_SKIP() << "the hard limit of descriptors is too low";
  RawEnd target(*right_);
  const std::size_t before = test::own_descriptors();
  std::vector<sys::Descriptor> clients;
  std::size_t most = 0;
  for (std::size_t i = 0; i < strangers; ++i) {
    clients.push_back(knock(target));
    ASSERT_TRUE(clients.back().valid()) << i;
    ask_for_nobody(clients.back().get(), target.number());
    most = std::max(most, test::own_descriptors() - clients.size());
  }
  // Those that are still to be accepted or answered are few.
  EXPECT_LE(most - before, limit / limits::refused_share + limit / limits::half_open_share);
  EXPECT_GT(right_->refusals().strangers, 0U);
  EXPECT_GT(right_->refusals().reset, 0U);
}

// Of a program that expects this host and asks for other numbers, so that each answer comes at
// once. Later ones than the bound allows cost the oldest one its connection.
TEST_F(Strangers, WhoWereRefusedAreResetOldestFirst) {
  constexpr std::size_t places = 8;
  constexpr std::size_t many = 24;
  Settings settings = patient_settings();
  settings.strangers.refused = places;
  ASSERT_NO_FATAL_FAILURE(make_right(settings));
  RawEnd target(*right_);
  expect_loopback(target);
  const Refusals& refusals = right_->refusals();
  for (int attempt = 0; attempt < 20; ++attempt) {
    await([&] { return right_->refused_connections().count() == 0; });
    const std::uint64_t resets = refusals.reset;
    const std::uint64_t refused = refusals.refused;
    const std::uint64_t begin_ns = sys::now_ns();
    std::vector<sys::Descriptor> clients;
    for (std::size_t i = 1; i <= many && !HasFailure(); ++i) {
      clients.push_back(knock(target));
      ask_for_nobody(clients.back().get(), target.number());
      await_count(refusals.refused, refused + i);
    }
    ASSERT_FALSE(HasFailure());
    // The first ones must not have ended by themselves before the last one came.
    if (sys::now_ns() > begin_ns + limits::linger_ns / 2) continue;
    await_at_least(refusals.reset, resets + many - places);
    // The kernel tells a client of its reset just behind the count.
    await([&] {
      const auto first_kept = std::ranges::find_if_not(
          clients, [](const auto& client) { return test::was_reset(client.get()); });
      return first_kept - clients.begin() == many - places &&
             std::none_of(first_kept, clients.end(),
                          [](const auto& client) { return test::was_reset(client.get()); });
    });
    return;
  }
  GTEST_SKIP() << "the machine is too slow to refuse " << many << " clients in half a second";
}

// Answers to them are late, and the number of those that wait is bounded.
TEST_F(Strangers, WhoWaitForAnAnswerAreFew) {
  const DescriptorLimit descriptor_limit(test::own_descriptors() + 150);
  if (!descriptor_limit.possible()) GTEST_SKIP() << "the hard limit of descriptors is too low";
  RawEnd target(*right_);
  const std::uint64_t end_ns = sys::now_ns() + 30'000'000'000;
  // On a busy machine they may come so slowly that each is answered in time.
  while (right_->refusals().answered_early == 0 && sys::now_ns() < end_ns) {
    std::vector<sys::Descriptor> clients;
    for (std::size_t i = 0; i < 2 * limits::least_half_open; ++i) {
      clients.push_back(knock(target));
      if (clients.back().valid()) ask_for_nobody(clients.back().get(), target.number());
    }
  }
  EXPECT_GT(right_->refusals().answered_early, 0U);
}

// What is counted otherwise is tested where it happens: strangers, wrong_psn and other_user in
// Impostor.*, reset and evicted in the tests of this file.
TEST_F(Strangers, WhoAreSilentAreCountedAfterThreeSeconds) {
  static_assert(limits::first_byte_ns == 3'000'000'000);
  RawEnd target(*right_);
  const std::uint64_t before_ns = sys::now_ns();
  const sys::Descriptor silent = knock(target);
  await_count(right_->refusals().timed_out);
  const std::uint64_t taken_ns = sys::now_ns() - before_ns;
  EXPECT_GE(taken_ns, limits::first_byte_ns);
  EXPECT_LT(taken_ns, limits::handshake_ns) << "that long one may take that has begun";
}

TEST_F(Strangers, WhoSendNoMpaAreCounted) {
  RawEnd target(*right_);
  const sys::Descriptor browser = knock(target);
  constexpr std::string_view request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_GT(sys::write(browser.get(), request.data(), request.size()), 0);
  await_count(right_->refusals().malformed);
}

TEST_F(Strangers, WhoCloseAreCounted) {
  RawEnd target(*right_);
  sys::Descriptor hasty = knock(target);
  hasty.reset();
  await_count(right_->refusals().closed);
  sys::Descriptor broken_off = knock(target);
  ASSERT_EQ(sys::write(broken_off.get(), "MPA ID", 6), 6);
  broken_off.reset();
  await_count(right_->refusals().malformed);
}

TEST_F(Strangers, WhoAskForOthersAreCounted) {
  RawEnd target(*right_);
  expect_loopback(target);
  const sys::Descriptor wrong = knock(target);
  ask_for_nobody(wrong.get(), target.number());
  await_count(right_->refusals().refused);
  RawEnd early(*right_);
  ASSERT_EQ(early.to_init(), 0);
  const sys::Descriptor soon = knock(target);
  ask_for(soon.get(), early.number());
  await_count(right_->refusals().not_ready);
}

TEST_F(Strangers, AreCountedWhereNoDescriptorIsLeft) {
#ifdef __SANITIZE_ADDRESS__
  // Its runtime tests whether memory can be read with a pipe, and calls objects invalid without
  // one.
  GTEST_SKIP() << "the sanitizers need descriptors themselves";
#endif
  RawEnd target(*right_);
  sys::Descriptor client(sys::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int lowest_free = ::dup(client.get());
  sys::Descriptor(lowest_free).reset();
  const DescriptorLimit none_left(static_cast<rlim_t>(lowest_free));
  if (!none_left.possible()) GTEST_SKIP() << "the limit of descriptors cannot be set";
  const sockaddr_in address = address_of(target);
  ASSERT_EQ(sys::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            0);
  const std::uint64_t end_ns = sys::now_ns() + 30'000'000'000;
  while (right_->refusals().out_of_descriptors == 0 && sys::now_ns() < end_ns) {
    std::this_thread::yield();
  }
  EXPECT_GT(right_->refusals().out_of_descriptors, 0U);
}

// Silent connections have all the time of the world here, so that only making room for newcomers
// lets anybody in. Each newcomer costs at most one of them its place, and no other one ends.
TEST_F(Strangers, WhoAreSilentMakeRoomForNewcomers) {
  constexpr std::size_t places = 64;
  constexpr std::size_t newcomers = 20;
  Settings settings = patient_settings();
  settings.strangers.half_open = places;
  ASSERT_NO_FATAL_FAILURE(make_right(settings));
  RawEnd target(*right_);
  // From the address of the clients as well, which then has more than its share.
  std::vector<sys::Descriptor> silent;
  for (const std::uint32_t host : {1U, 1U, 2U, 3U}) {
    for (std::size_t i = 0; i < places; ++i) silent.push_back(knock(target, host));
  }
  const Refusals& refusals = right_->refusals();
  await_at_least(refusals.evicted, silent.size() - places);
  const std::uint64_t before = refusals.evicted;
  for (std::size_t i = 0; i < newcomers; ++i) {
    (void)time_of_a_client();
    ASSERT_FALSE(HasFailure()) << i;
  }
  EXPECT_LE(refusals.evicted - before, newcomers);
  EXPECT_EQ(refusals.timed_out, 0U);
}

// No more than half of the places are one address's, so its newcomers take the places of its own
// silent connections, and not of the oldest one of all.
TEST_F(Strangers, WhoComeFromOneAddressTakeTheirOwnPlaces) {
  constexpr std::size_t places = 16;
  constexpr std::size_t many = 100;
  Settings settings = patient_settings();
  settings.strangers.half_open = places;
  ASSERT_NO_FATAL_FAILURE(make_right(settings));
  RawEnd target(*right_);
  const sys::Descriptor other = knock(target, 3);
  ASSERT_TRUE(other.valid());
  std::vector<sys::Descriptor> silent;
  for (std::size_t i = 0; i < many; ++i) silent.push_back(knock(target, 2));
  await_at_least(right_->refusals().evicted, many - places / 2);
  EXPECT_FALSE(is_closed(other.get()));
  const auto held = [&] {
    return std::ranges::count_if(silent, [](const auto& one) { return !is_closed(one.get()); });
  };
  await([&] { return held() <= static_cast<std::ptrdiff_t>(places / 2); });
  // The newest are left.
  EXPECT_FALSE(is_closed(silent.back().get()));
}

// Of many addresses, so that the bound for one of them is not reached.
TEST_F(Strangers, WhoAreSilentTakeAShareOfTheDescriptors) {
  constexpr rlim_t limit = 512;
  constexpr std::size_t share = limit / limits::half_open_share;
  constexpr std::size_t addresses = 8;
  constexpr std::size_t of_each = share / 4;
  const DescriptorLimit descriptor_limit(limit);
  if (!descriptor_limit.possible()) GTEST_SKIP() << "the hard limit of descriptors is too low";
  ASSERT_NO_FATAL_FAILURE(make_right(patient_settings()));
  RawEnd target(*right_);
  const std::size_t before = test::own_descriptors();
  std::vector<sys::Descriptor> clients;
  for (std::uint32_t host = 2; host < 2 + addresses; ++host) {
    for (std::size_t i = 0; i < of_each; ++i) {
      clients.push_back(knock(target, host));
      ASSERT_TRUE(clients.back().valid()) << clients.size();
    }
  }
  // Then all of them were accepted.
  await_at_least(right_->refusals().evicted, clients.size() - share);
  const auto held = [&] { return test::own_descriptors() - clients.size() - before; };
  await([&] { return held() <= share; });
  EXPECT_EQ(right_->refusals().out_of_descriptors, 0U);
}

// 500 silent connections a second, more of them than may be half open. A legitimate client connects
// within 100 ms.
//
// On a busy machine some attempts take longer for other reasons. So one of those that are made
// while the table is full must be that quick: if the silent ones kept others out, none was. Half of
// them must be where the machine is idle enough: where connections are quick before and after.
TEST_F(Strangers, WhoAreSilentDoNotKeepOthersOut) {
  constexpr std::size_t strangers = 1500;
  const DescriptorLimit descriptor_limit(4 * limits::max_half_open);
  if (!descriptor_limit.possible()) GTEST_SKIP() << "the hard limit of descriptors is too low";
  RawEnd target(*right_);
  const auto before = times_of_clients(10);
  std::vector<std::chrono::nanoseconds> meanwhile;
  {
    std::atomic<std::size_t> count{0};
    const std::jthread flood([&](const std::stop_token& stop) {
      std::deque<sys::Descriptor> silent;
      while (!stop.stop_requested()) {
        silent.push_back(knock(target));
        if (silent.size() > strangers) silent.pop_front();
        ++count;
        std::this_thread::sleep_for(2ms);
      }
    });
    while (count < strangers && !HasFailure()) (void)time_of_a_client();
    meanwhile = times_of_clients(20);
  }
  const auto after = times_of_clients(10);
  ASSERT_FALSE(HasFailure());
  const auto in_the_middle = meanwhile[meanwhile.size() / 2];
  RecordProperty("shortest_us", static_cast<int>(meanwhile.front() / 1us));
  RecordProperty("middle_us", static_cast<int>(in_the_middle / 1us));
  RecordProperty("longest_us", static_cast<int>(meanwhile.back() / 1us));
  EXPECT_GT(right_->refusals().evicted, 0U);
  EXPECT_LT(meanwhile.front(), 100ms);
  const bool idle = std::max(before.back(), after.back()) < 20ms;
  RecordProperty("idle_enough", idle ? 1 : 0);
  if (idle) {
    EXPECT_LT(in_the_middle, 100ms);
  }
}

}  // namespace
}  // namespace weft::device
