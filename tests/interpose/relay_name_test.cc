// The name of a relay's end, from which a program learns the addresses of its connection.
#include "interpose/relay_name.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

#include "support/refuse.h"

namespace weft::interpose {
namespace {

sockaddr_storage address(std::uint16_t port) {
  sockaddr_storage result{};
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(result);
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return result;
}

std::uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

class Pipe {
 public:
  Pipe() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()), 0); }
  ~Pipe() {
    for (const int end : ends_) close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  [[nodiscard]] int relay() const { return ends_[0]; }
  [[nodiscard]] int program() const { return ends_[1]; }

 private:
  std::array<int, 2> ends_{-1, -1};
};

void expect_names(const Pipe& pipe) {
  const std::optional<RelayNames> found = relay_names(pipe.program());
  ASSERT_TRUE(found);
  EXPECT_EQ(port_of(found->local), 1000);
  EXPECT_EQ(port_of(found->peer), 2000);
}

// One connection after the other may have these addresses, while the first one's relay still is
// there.
TEST(RelayName, HasTheAddressesOfTheConnection) {
  const Pipe first;
  const Pipe second;
  EXPECT_FALSE(relay_names(first.program()));
  for (const Pipe* pipe : {&first, &second}) {
    name_relay(pipe->relay(), {address(1000), address(2000)});
    expect_names(*pipe);
  }
}

TEST(RelayName, IsGivenWhereRandomNumbersAreRefused) {
  const bool possible = test::run_without({SYS_getrandom}, EPERM, [&] {
    const Pipe pipe;
    name_relay(pipe.relay(), {address(1000), address(2000)});
    expect_names(pipe);
  });
  if (!possible) GTEST_SKIP() << "no system call can be refused here";
}

}  // namespace
}  // namespace weft::interpose
