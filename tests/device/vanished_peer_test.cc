// A host that vanishes without notice: no FIN, no reset, and nothing is acknowledged any more.
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <filesystem>
#include <thread>
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
    client_.connect_briefly(server_);
    server_.connect_briefly(client_);
    pass_message(client_, server_);
  }

  void vanish() {
    sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program{1, &drop};
    for (const int fd : sockets()) {
      ASSERT_EQ(sys::set_option(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
    }
  }
  void come_back() {
    for (const int fd : sockets())
      ASSERT_EQ(sys::set_option(fd, SOL_SOCKET, SO_DETACH_FILTER, 0), 0);
  }

  // Those of both ends of the connection.
  [[nodiscard]] std::vector<int> sockets() {
    std::vector<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::stoi(entry.path().filename());
      sockaddr_storage local{};
      sockaddr_storage peer{};
      if (sys::local_address(fd, &local) < 0 || sys::peer_address(fd, &peer) < 0) continue;
      if (is_slot(local) || is_slot(peer)) found.push_back(fd);
    }
    EXPECT_EQ(found.size(), 2U);
    return found;
  }

  // Waits until TCP of one end reports this.
  template <typename Predicate>
  void await_tcp(Predicate reported) {
    const std::vector<int> ends = sockets();
    const auto is_so = [&](int fd) {
      tcp_info info{};
      socklen_t bytes = sizeof info;
      return sys::get_option(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && reported(info);
    };
    while (std::none_of(ends.begin(), ends.end(), is_so)) std::this_thread::yield();
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

// Nothing was asked in that time. A busy host that does not answer at once is not a silent one.
TEST_F(VanishedPeer, SilenceBeforeTheRequestDoesNotCount) {
  connect();
  auto local = client_.buffer(64);
  auto remote = server_.buffer(64);
  ibv_qp_attr attributes{};
  attributes.timeout = 17;
  attributes.retry_cnt = 7;  // 4.3 s
  client_.queue_pair->take_attributes(attributes, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT);
  await_tcp([](const tcp_info& info) { return info.tcpi_last_ack_recv > 4300; });
  vanish();
  ASSERT_EQ(client_.write(1, {local->sge(0, 64)}, remote->address(), remote->rkey()), 0);
  await_tcp([](const tcp_info& info) { return info.tcpi_retransmits > 0; });
  come_back();
  EXPECT_EQ(client_.await().status, IBV_WC_SUCCESS);
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
