// A host that vanishes without notice: no FIN, no reset, and nothing is acknowledged any more.
#include <linux/filter.h>

#include <gmock/gmock.h>

#include <filesystem>
#include <vector>

#include "device/connect/slots.h"
#include "device/pair_fixture.h"
#include "device/raw_end.h"

namespace weft::device {
namespace {

// Both ends of a connection whose TCP hears nothing of the other any more: a socket filter drops
// what comes in, before TCP sees it.
class VanishedPeer : public ::testing::Test {
 protected:
  // A process on this host ends, and does not vanish.
  void SetUp() override { SKIP_WITHOUT_TCP("a packet filter makes the peer vanish"); }

  void connect() {
    client_.connect(server_);
    server_.connect(client_);
    pass_message(client_, server_);
  }

  void vanish() {
    sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program{1, &drop};
    int cut = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::stoi(entry.path().filename());
      sockaddr_storage local{};
      sockaddr_storage peer{};
      if (sys::local_address(fd, &local) < 0 || sys::peer_address(fd, &peer) < 0) continue;
      if (!is_slot(local) && !is_slot(peer)) continue;
      cut += sys::set_option(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
    }
    ASSERT_EQ(cut, 2);
  }

  [[nodiscard]] bool is_slot(const sockaddr_storage& address) {
    return port_of(address) == slot::port_of(client_.number()) ||
           port_of(address) == slot::port_of(server_.number());
  }

  std::unique_ptr<Device> left_ = make_roce_device();
  std::unique_ptr<Device> right_ = make_roce_device();
  RawEnd client_{*left_};
  RawEnd server_{*right_};
};

TEST_F(VanishedPeer, EndsAWriteInRetryExceeded) {
  connect();
  auto local = client_.buffer(64);
  auto remote = server_.buffer(64);
  vanish();
  ASSERT_EQ(client_.write(1, {local->sge(0, 64)}, remote->address(), remote->rkey()), 0);
  const ibv_wc failed = client_.await();
  EXPECT_EQ(failed.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(failed.vendor_err, ETIMEDOUT);
  EXPECT_EQ(left_->refusals().silent, 1U);
}

// Nothing was lost, and the connection is as it was.
TEST_F(VanishedPeer, IsNotNoticedWhileNothingWaits) {
  connect();
  vanish();
  EXPECT_TRUE(client_.stays_quiet());
  EXPECT_EQ(client_.state(), IBV_QPS_RTS);
}

// Whether TCP asks after the peer, for each connection of this process.
std::vector<int> keepalives() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_storage peer{};
    int on = 0;
    socklen_t bytes = sizeof on;
    if (sys::peer_address(fd, &peer) < 0 || peer.ss_family == AF_UNIX) continue;
    if (sys::get_option(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &bytes) == 0) found.push_back(on);
  }
  return found;
}

// A server of rdma_cm has no other way to learn of a client that vanished; a paired queue pair
// stays as it is.
TEST_F(VanishedPeer, IsAskedForWhileAConnectionOfRdmaCmIsIdle) {
  {
    const Pair connected;
    EXPECT_THAT(keepalives(), testing::ElementsAre(1, 1));
  }
  connect();
  EXPECT_THAT(keepalives(), testing::Each(0));
}

}  // namespace
}  // namespace weft::device
