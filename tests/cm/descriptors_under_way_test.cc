// Linux limits how many descriptors a user has in messages that were not received yet
// (ETOOMANYREFS, unix(7)). Weft's own messages wait until the kernel accepts them.
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "cm/fixture.h"
#include "device/queue_pair/queue_pair.h"

namespace weft::cm {
namespace {

// Takes two capabilities from the calling thread, because the kernel does not limit descriptors
// under way for a thread that has one of them. The device's threads inherit what their starter has.
class WithoutCapabilities {
 public:
  WithoutCapabilities() {
    syscall(SYS_capget, &header_, before_.data());
    auto reduced = before_;
    const std::uint32_t exempt = (1U << CAP_SYS_ADMIN) | (1U << CAP_SYS_RESOURCE);
    reduced[0].effective &= ~exempt;
    syscall(SYS_capset, &header_, reduced.data());
  }
  ~WithoutCapabilities() { syscall(SYS_capset, &header_, before_.data()); }
  WithoutCapabilities(const WithoutCapabilities&) = delete;
  WithoutCapabilities& operator=(const WithoutCapabilities&) = delete;

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> before_{};
};

// More descriptors under way than this process may have open. The limit is that of the process
// that sends, so that others of the user, with more, are not disturbed.
class TooManyUnderWay {
 public:
  TooManyUnderWay() {
    getrlimit(RLIMIT_NOFILE, &before_);
    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends_.data());
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(ends_[1]) + 64;
    setrlimit(RLIMIT_NOFILE, &few);
    while (send()) {
    }
    refused_ = errno == ETOOMANYREFS;
  }
  ~TooManyUnderWay() {
    for (const int end : ends_) close(end);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  TooManyUnderWay(const TooManyUnderWay&) = delete;
  TooManyUnderWay& operator=(const TooManyUnderWay&) = delete;

  [[nodiscard]] bool refused() const { return refused_; }

 private:
  [[nodiscard]] bool send() const {
    constexpr int most = 16;
    std::array<int, most> files;
    files.fill(ends_[0]);
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof files)> control{};
    std::byte content{};
    iovec piece{&content, 1};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof files);
    std::memcpy(CMSG_DATA(part), files.data(), sizeof files);
    return sendmsg(ends_[0], &message, MSG_NOSIGNAL) == 1;
  }

  rlimit before_{};
  std::array<int, 2> ends_{-1, -1};
  bool refused_ = false;
};

std::chrono::nanoseconds processor_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

class DescriptorsUnderWay : public CmTest {
 protected:
  void SetUp() override {
    CmTest::SetUp();
    if (settings_.same_host == device::SameHost::off) GTEST_SKIP() << "about leaving TCP";
    for (Pair& pair : first_) pair = connect_pair();
    // Both ends know each other's process from here on.
    while (!device_->process_pairs().towards(listening_address())) std::this_thread::yield();
  }

  void TearDown() override {
    for (Pair& pair : first_) {
      if (pair.client) destroy(pair);
    }
    CmTest::TearDown();
  }

  WithoutCapabilities reduced_;
  std::array<Pair, 2> first_;
};

// A request of a connection has the files of its inbox and its grants.
TEST_F(DescriptorsUnderWay, ARequestWaitsWithoutUsingTheProcessor) {
  rdma_cm_id* const client = make_client(active_, listener_);
  make_queue_pair(client);
  rdma_conn_param parameters{};
  {
    const TooManyUnderWay under_way;
    if (!under_way.refused()) GTEST_SKIP() << "this kernel has no such limit here";
    ASSERT_EQ(manager_->connect(client, &parameters), 0);
    const auto began = std::chrono::steady_clock::now();
    const auto used = processor_time();
    EXPECT_TRUE(quiet(passive_));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    // Another program that takes the processor only makes the share smaller.
    EXPECT_LT(processor_time() - used, (std::chrono::steady_clock::now() - began) / 4);
  }
  const auto request = expect(passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_NE(request, nullptr);
  rdma_cm_id* const server = request->id;
  make_queue_pair(server);
  ASSERT_EQ(manager_->accept(server, &parameters), 0);
  expect(active_, RDMA_CM_EVENT_ESTABLISHED);
  expect(passive_, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(device::QueuePair::of(client->qp)->carrier_note().name, "same-host");
  destroy(client);
  destroy(server);
}

}  // namespace
}  // namespace weft::cm
