// System calls that old kernels and sandboxes refuse, and that the device does without.
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "device/raw_end.h"
#include "device/system.h"
#include "device/system_messages.h"
#include "support/refuse.h"

namespace weft::device {
namespace {

struct Call {
  const char* name;
  std::vector<test::RefusedCall> refused;
};

class OptionalCall : public testing::TestWithParam<Call> {};

// Two devices, whose threads inherit the filter, register memory, pair by number and exchange data.
void converse() {
  const auto left = make_roce_device();
  const auto right = make_roce_device();
  RawEnd client(*left);
  RawEnd server(*right);
  ASSERT_EQ(server.to_init(), 0);
  ASSERT_EQ(server.to_rtr(client.gid(), client.number()), 0);
  client.connect(server);
  pass_message(client, server);
  const auto source = client.buffer(100'000);
  const auto target = server.buffer(100'000);
  ASSERT_EQ(client.write(1, {source->sge(0, 100'000)}, target->address(), target->rkey()), 0);
  EXPECT_EQ(client.await().status, IBV_WC_SUCCESS);
  ASSERT_EQ(client.read(2, {source->sge(0, 100'000)}, target->address(), target->rkey()), 0);
  EXPECT_EQ(client.await().status, IBV_WC_SUCCESS);
}

TEST_P(OptionalCall, IsNotNeeded) {
  for (const int error : {ENOSYS, EPERM}) {
    if (!test::run_without(GetParam().refused, error, converse))
      GTEST_SKIP() << "no seccomp filters here";
  }
}

// Memory that is not mapped is still refused without msync(2) and mincore(2).
TEST(OptionalCalls, RegistrationChecksMemoryByReading) {
  const bool possible = test::run_without({SYS_msync, SYS_mincore}, ENOSYS, [] {
    Pair pair;
    EXPECT_EQ(pair.a.context.register_memory(*pair.a.domain, reinterpret_cast<void*>(0x1000), 4096,
                                             0x1000, 0),
              nullptr);
    EXPECT_EQ(errno, EFAULT);
  });
  if (!possible) GTEST_SKIP() << "no seccomp filters here";
}

// Sends three datagrams from a socket to itself.
void send_to_itself() {
  const sys::Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(socket.get(), generic, bytes), 0);
  ASSERT_EQ(::getsockname(socket.get(), generic, &bytes), 0);
  ASSERT_EQ(::connect(socket.get(), generic, bytes), 0);
  std::string sent = "abc";
  std::string received = "....";
  std::array<iovec, 7> pieces{};
  std::array<mmsghdr, 3> out{};
  std::array<mmsghdr, 4> in{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    pieces[i] = {&sent[i], 1};
    out[i].msg_hdr.msg_iov = &pieces[i];
    out[i].msg_hdr.msg_iovlen = 1;
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    pieces[3 + i] = {&received[i], 1};
    in[i].msg_hdr.msg_iov = &pieces[3 + i];
    in[i].msg_hdr.msg_iovlen = 1;
  }
  EXPECT_EQ(sys::send_messages(socket.get(), out), 3);
  EXPECT_EQ(sys::receive_messages(socket.get(), in), 3);
  EXPECT_EQ(received, "abc.");
  EXPECT_EQ(in[2].msg_len, 1U);
  EXPECT_EQ(sys::receive_messages(socket.get(), in), -EAGAIN);
}

TEST(OptionalCalls, DatagramsMoveOneByOne) {
  send_to_itself();
  for (const int error : {EPERM, ENOSYS}) {
    const bool possible = test::run_without({SYS_sendmmsg, SYS_recvmmsg}, error, send_to_itself);
    if (!possible) GTEST_SKIP() << "no seccomp filters here";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, OptionalCall,
    testing::Values(Call{"preadv2", {SYS_preadv2}}, Call{"msync", {SYS_msync}},
                    Call{"mincore", {SYS_msync, SYS_mincore}}, Call{"madvise", {SYS_madvise}},
                    Call{"getrandom", {SYS_getrandom}},
                    Call{"process_vm", {SYS_process_vm_readv, SYS_process_vm_writev}},
                    Call{"tcp_info", {{SYS_getsockopt, 2, TCP_INFO}}},
                    Call{"sock_diag", {{SYS_socket, 2, NETLINK_SOCK_DIAG}}},
                    Call{"unix_sockets", {{SYS_socket, 0, AF_UNIX}}}, Call{"statx", {SYS_statx}},
                    Call{"pidfd_open", {SYS_pidfd_open}}, Call{"memfd_create", {SYS_memfd_create}},
                    Call{"ftruncate", {SYS_ftruncate}}, Call{"socketpair", {SYS_socketpair}},
                    Call{"membarrier", {SYS_membarrier}}, Call{"epoll_pwait2", {SYS_epoll_pwait2}},
                    Call{"reuse_port", {{SYS_setsockopt, 2, SO_REUSEPORT}}},
                    Call{"sched_yield", {SYS_sched_yield}}, Call{"close_range", {SYS_close_range}},
                    Call{"prctl", {SYS_prctl}}, Call{"ioctl", {SYS_ioctl}},
                    Call{"prlimit", {SYS_prlimit64}},
                    Call{"readlink", {SYS_readlink, SYS_readlinkat}},
                    Call{"io_uring", {SYS_io_uring_setup}},
                    Call{"keepalive", {{SYS_setsockopt, 2, SO_KEEPALIVE}}},
                    Call{"peer_credentials", {{SYS_getsockopt, 2, SO_PEERCRED}}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft::device
