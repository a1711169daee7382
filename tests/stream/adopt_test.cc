// Streams over TCP connections that the program has accepted itself.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "stream/sides.h"
#include "support/device.h"
#include "support/host.h"

namespace weft::stream {
namespace {

// A kernel TCP listener, as of a server that does not know yet which protocol its clients use.
struct PlainListener {
  PlainListener() : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd, 8), 0);
    socklen_t bytes = sizeof address;
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  }
  ~PlainListener() { close(fd); }
  PlainListener(const PlainListener&) = delete;
  PlainListener& operator=(const PlainListener&) = delete;
  [[nodiscard]] Address name() const { return {test::host(), ntohs(address.sin_port)}; }

  int fd;
  sockaddr_in address{};
};

TEST(Adopting, AStreamComesOfAConnectionThatWasAccepted) {
  const PlainListener plain;
  Listener listener = Listener::for_connections();
  std::vector<Stream> active(2);
  std::vector<Stream> passive;
  for (Stream& stream : active) {
    stream.start_connecting(plain.name(), bytes_of("hello"));
    listener.adopt(accept(plain.fd, nullptr, nullptr));
    auto request = listener.next(test_timeout);
    ASSERT_TRUE(request);
    EXPECT_EQ(text_of(request->private_data()), "hello");
    passive.push_back(std::move(*request).accept());
    ASSERT_TRUE(stream.await_connected(test_timeout));
    EXPECT_EQ(stream.local_address(), passive.back().peer_address());
    EXPECT_EQ(stream.peer_address(), passive.back().local_address());
  }
  EXPECT_TRUE(active[0].send(bytes_of("first")).ok());
  EXPECT_TRUE(passive[1].send(bytes_of("second")).ok());
  EXPECT_EQ(text_of(receive_all(passive[0], 5)), "first");
  EXPECT_EQ(text_of(receive_all(active[1], 6)), "second");
}

TEST(Adopting, AClientOfAnotherProtocolIsDisconnected) {
  const PlainListener plain;
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&plain.address), sizeof(sockaddr_in)),
            0);
  Listener listener = Listener::for_connections();
  listener.adopt(accept(plain.fd, nullptr, nullptr));
  constexpr std::string_view request = "GET /index.html HTTP/1.0\r\n\r\n";
  ASSERT_EQ(send(client, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  char byte = 0;
  EXPECT_LE(recv(client, &byte, 1, 0), 0);
  EXPECT_FALSE(listener.next(Deadline::now()));
  close(client);
}

// What the program has set for its own connections: TCP_CORK keeps short messages back for 200 ms,
// with SO_RCVLOWAT such a message does not show, with SO_LINGER close(2) waits for the peer.
TEST(Adopting, NoOptionOfTheProgramsListenerRemains) {
  const PlainListener plain;
  const auto set = [&](int level, int name, const auto& value) {
    ASSERT_EQ(setsockopt(plain.fd, level, name, &value, sizeof value), 0);
  };
  set(IPPROTO_TCP, TCP_CORK, 1);
  set(SOL_SOCKET, SO_RCVLOWAT, 5000);
  set(SOL_SOCKET, SO_LINGER, linger{.l_onoff = 1, .l_linger = 5});
  Listener listener = Listener::for_connections();
  Stream active;
  active.start_connecting(plain.name());
  const int accepted = accept(plain.fd, nullptr, nullptr);
  const int copy = dup(accepted);
  listener.adopt(accepted);
  const auto first_int_of = [&](int level, int name) {
    std::array<int, 2> value{-1, -1};
    socklen_t bytes = sizeof value;
    EXPECT_EQ(getsockopt(copy, level, name, value.data(), &bytes), 0);
    return value[0];
  };
  EXPECT_EQ(first_int_of(IPPROTO_TCP, TCP_CORK), 0);
  EXPECT_EQ(first_int_of(SOL_SOCKET, SO_RCVLOWAT), 1);
  EXPECT_EQ(first_int_of(SOL_SOCKET, SO_LINGER), 0);
  close(copy);
  auto request = listener.next(test_timeout);
  ASSERT_TRUE(request);
  Stream passive = std::move(*request).accept();
  ASSERT_TRUE(active.await_connected(test_timeout));
  EXPECT_TRUE(active.send(bytes_of("short")).ok());
  EXPECT_EQ(text_of(receive_all(passive, 5)), "short");
}

// The error differs from that of a port at which no program listens.
TEST(PlainPeer, ThatClosesWithoutAnAnswerHasNotRefused) {
  if (!test::own_device()) GTEST_SKIP() << "other devices do not connect by TCP here";
  const PlainListener plain;
  Stream stream;
  stream.start_connecting(plain.name());
  // The device tries again, with the older revision of MPA (RFC 6581 §10).
  for (int i = 0; i < 2; ++i) close(accept(plain.fd, nullptr, nullptr));
  try {
    (void)stream.await_connected(test_timeout);
    ADD_FAILURE() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), ECONNRESET) << error.what();
  }
}

TEST(Adopting, AListenerWithAnAddressTakesNone) {
  Listener listener({test::host(), 0});
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  try {
    listener.adopt(ends[0]);
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.error_number(), EINVAL);
  }
  char byte = 0;
  EXPECT_EQ(recv(ends[1], &byte, 1, 0), 0) << "the descriptor was not closed";
  close(ends[1]);
}

}  // namespace
}  // namespace weft::stream
