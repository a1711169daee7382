// A host that vanishes while a connection of rdma_cm is idle: only TCP's keepalive notices that.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cm/fixture.h"
#include "device/system.h"

namespace weft::cm {
namespace {

namespace sys = device::sys;

class VanishedHost : public CmTest {
 protected:
  // A process on this host ends, and does not vanish.
  VanishedHost() { settings_.same_host = device::SameHost::off; }

  // The TCP sockets of both ends.
  static std::vector<int> connections() {
    std::vector<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::stoi(entry.path().filename());
      sockaddr_storage peer{};
      if (sys::peer_address(fd, &peer) < 0 || peer.ss_family == AF_UNIX) continue;
      found.push_back(fd);
    }
    return found;
  }

  static int option_of(int fd, int name) {
    int value = 0;
    socklen_t bytes = sizeof value;
    EXPECT_EQ(sys::get_option(fd, IPPROTO_TCP, name, &value, &bytes), 0);
    return value;
  }

  // Until the peer's TCP has acknowledged everything: a connection with bytes under way is not
  // idle, and TCP sends no probes.
  static void await_silence(int fd) {
    const auto bytes_under_way = [fd] {
      int count = -1;
      EXPECT_EQ(::ioctl(fd, SIOCOUTQ, &count), 0);
      return count;
    };
    while (bytes_under_way() != 0 && !HasFailure()) std::this_thread::yield();
  }

  // TCP sees nothing of what comes in from now on.
  static void vanish() {
    sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program{1, &drop};
    for (const int fd : connections()) {
      ASSERT_EQ(sys::set_option(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
    }
  }
};

TEST_F(VanishedHost, EndsAnIdleConnection) {
  Pair pair = connect_pair();
  const std::vector<int> ends = connections();
  ASSERT_EQ(ends.size(), 2U);
  // Two minutes are too long for a test, so that the times are shorter from here on.
  for (const int fd : ends) {
    EXPECT_EQ(option_of(fd, TCP_KEEPIDLE), 60);
    EXPECT_EQ(option_of(fd, TCP_KEEPINTVL), 10);
    EXPECT_EQ(option_of(fd, TCP_KEEPCNT), 6);
    for (const auto& [name, value] :
         {std::pair{TCP_KEEPIDLE, 1}, {TCP_KEEPINTVL, 1}, {TCP_KEEPCNT, 2}}) {
      ASSERT_EQ(sys::set_option(fd, IPPROTO_TCP, name, value), 0);
    }
  }
  for (const int fd : ends) await_silence(fd);
  vanish();
  expect(active_, RDMA_CM_EVENT_DISCONNECTED);
  expect(passive_, RDMA_CM_EVENT_DISCONNECTED);
  destroy(pair);
}

}  // namespace
}  // namespace weft::cm
