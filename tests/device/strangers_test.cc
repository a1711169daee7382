// What peers that were not let in can cost a process: descriptors, and the time of legitimate ones.
#include <netinet/in.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <stop_token>
#include <thread>

#include "device/connect/slots.h"
#include "device/limits.h"
#include "device/raw_end.h"
#include "iwarp/handshake.h"
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

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

class Strangers : public ::testing::Test {
 protected:
  // A TCP connection to the port where `target` is found.
  static sys::Descriptor knock(RawEnd& target) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(slot::port_of(target.number()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sys::Descriptor fd(sys::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    if (!fd.valid() || sys::connect(fd.get(), generic, sizeof address) < 0) fd.reset();
    return fd;
  }

  // Asks for a queue pair that does not exist.
  static void ask_for_nobody(int fd, std::uint32_t number) {
    const wire::Hello hello{.source_qpn = 17, .destination_qpn = number ^ 1};
    std::vector<std::byte> data(wire::Hello::bytes);
    hello.emit(data);
    iwarp::ActiveHandshake handshake({}, data);
    const Bytes request = handshake.output();
    sys::write(fd, request.data(), request.size());
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
  const std::size_t before = descriptors();
  std::vector<sys::Descriptor> clients;
  std::size_t most = 0;
  for (std::size_t i = 0; i < strangers; ++i) {
    clients.push_back(knock(target));
    ASSERT_TRUE(clients.back().valid()) << i;
    ask_for_nobody(clients.back().get(), target.number());
    most = std::max(most, descriptors() - clients.size());
  }
  // Those that are still to be accepted or answered are few.
  EXPECT_LE(most - before, limit / limits::refused_share + limit / limits::half_open_share);
}

// 500 silent connections a second, until there are more than may be half open.
TEST_F(Strangers, WhoAreSilentDoNotKeepOthersOut) {
  constexpr std::size_t strangers = 1500;
  const DescriptorLimit descriptor_limit(4 * limits::max_half_open);
  if (!descriptor_limit.possible()) GTEST_SKIP() << "the hard limit of descriptors is too low";
  RawEnd target(*right_);
  std::atomic<std::size_t> count{0};
  const std::jthread flood([&](const std::stop_token& stop) {
    std::vector<sys::Descriptor> silent;
    while (!stop.stop_requested()) {
      if (count < strangers) {
        silent.push_back(knock(target));
        ++count;
      }
      std::this_thread::sleep_for(2ms);
    }
  });
  // It would wait for the silent ones' handshake to time out.
  constexpr auto bound = std::chrono::nanoseconds(limits::handshake_ns / 2);
  std::chrono::nanoseconds longest{0};
  for (bool last = false; !last && !HasFailure();) {
    last = count >= strangers;
    const auto begin = std::chrono::steady_clock::now();
    RawEnd client(*left_);
    RawEnd server(*right_);
    ASSERT_EQ(server.to_init(), 0);
    ASSERT_EQ(server.to_rtr(client.gid(), client.number()), 0);
    client.connect(server);
    pass_message(client, server);
    longest = std::max(longest, std::chrono::steady_clock::now() - begin);
    EXPECT_LT(longest, bound);
  }
  RecordProperty("longest_ms", static_cast<int>(longest / 1ms));
  EXPECT_GT(right_->refusals().evicted + right_->refusals().timed_out, 0U);
}

}  // namespace
}  // namespace weft::device
