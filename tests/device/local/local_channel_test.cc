// How the two ends of a TCP connection within one host find each other.
#include "device/local/local_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "device/addresses.h"
#include "device/connect/refusals.h"

namespace weft::device {
namespace {

// A TCP listener on `address`, and connections to it.
class TcpListener {
 public:
  explicit TcpListener(const char* address, std::uint16_t port = 0) {
    EXPECT_TRUE(parse_address(address, address_));
    set_port(address_, port);
    socket_.reset(sys::socket(address_.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int off = 0;
    if (address_.ss_family == AF_INET6) {
      sys::set_option(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    bound_ = sys::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address_), size(address_)) == 0;
    EXPECT_TRUE(!bound_ || sys::listen(socket_.get(), 16) == 0);
    sys::local_address(socket_.get(), &address_);
  }

  // (active, passive)
  std::pair<sys::Descriptor, sys::Descriptor> connect(const char* to) {
    sockaddr_storage target{};
    EXPECT_TRUE(parse_address(to, target));
    set_port(target, port_of(address_));
    sys::Descriptor active(sys::socket(target.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(sys::connect(active.get(), reinterpret_cast<sockaddr*>(&target), size(target)), 0);
    sockaddr_storage from{};
    return {std::move(active), sys::Descriptor(sys::accept(socket_.get(), &from))};
  }

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] bool bound() const { return bound_; }
  [[nodiscard]] std::uint16_t port() const { return port_of(address_); }

 private:
  static socklen_t size(const sockaddr_storage& address) {
    return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  }

  sockaddr_storage address_{};
  sys::Descriptor socket_;
  bool bound_ = false;
};

// The last message that has come, as text.
std::string text(LocalChannel& channel) {
  const auto message = channel.receive();
  if (!message) return "nothing";
  return {reinterpret_cast<const char*>(message->bytes.data()), message->bytes.size()};
}

void expect_joined(LocalChannel& left, LocalChannel& right) {
  ASSERT_TRUE(left.valid());
  ASSERT_TRUE(right.valid());
  ASSERT_TRUE(left.send(std::as_bytes(std::span("left"))));
  EXPECT_EQ(std::string(text(right).c_str()), "left");
  ASSERT_TRUE(right.send(std::as_bytes(std::span("right"))));
  EXPECT_EQ(std::string(text(left).c_str()), "right");
}

TEST(LocalChannel, JoinsTheTwoEndsOfEachConnection) {
  Refusals refusals;
  LocalListeners listeners(refusals);
  TcpListener listener("127.0.0.1");
  ASSERT_TRUE(listeners.add(listener.fd()));
  auto first = listener.connect("127.0.0.1");
  auto second = listener.connect("127.0.0.1");
  LocalChannel first_active = LocalChannel::dial(TcpEnds::of(first.first.get()));
  LocalChannel second_active = LocalChannel::dial(TcpEnds::of(second.first.get()));
  // Taken in the other order.
  LocalChannel second_passive = listeners.take(TcpEnds::of(second.second.get()));
  LocalChannel first_passive = listeners.take(TcpEnds::of(first.second.get()));
  expect_joined(first_active, first_passive);
  expect_joined(second_active, second_passive);
  EXPECT_EQ(first_active.peer(), getpid());
  EXPECT_EQ(first_passive.peer(), getpid());
  EXPECT_FALSE(listeners.take(TcpEnds::of(first.second.get())).valid()) << "it was taken before";
}

TEST(LocalChannel, TheFirstOfTwoLeavesTheOtherInTheQueue) {
  Refusals refusals;
  LocalListeners listeners(refusals);
  TcpListener listener("127.0.0.1");
  ASSERT_TRUE(listeners.add(listener.fd()));
  auto first = listener.connect("127.0.0.1");
  auto second = listener.connect("127.0.0.1");
  LocalChannel first_active = LocalChannel::dial(TcpEnds::of(first.first.get()));
  LocalChannel second_active = LocalChannel::dial(TcpEnds::of(second.first.get()));
  LocalChannel first_passive = listeners.take(TcpEnds::of(first.second.get()));
  LocalChannel second_passive = listeners.take(TcpEnds::of(second.second.get()));
  expect_joined(first_active, first_passive);
  expect_joined(second_active, second_passive);
}

TEST(LocalChannel, HasNoPeerOnceThisProcessHasAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can change its user";
  Refusals refusals;
  LocalListeners listeners(refusals);
  TcpListener listener("127.0.0.1");
  ASSERT_TRUE(listeners.add(listener.fd()));
  auto connection = listener.connect("127.0.0.1");
  const LocalChannel channel = LocalChannel::dial(TcpEnds::of(connection.first.get()));
  EXPECT_EQ(channel.peer(), getpid());
  constexpr uid_t other = 65534;
  ASSERT_EQ(seteuid(other), 0);
  const pid_t peer = channel.peer();
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(peer, 0);
}

TEST(LocalChannel, OfTwoAddressesWithOnePortAreNotMixedUp) {
  Refusals refusals;
  LocalListeners listeners(refusals);
  TcpListener one("127.0.0.1");
  TcpListener two("127.0.0.2", one.port());
  if (!two.bound()) GTEST_SKIP() << "the port is taken";
  ASSERT_TRUE(listeners.add(one.fd()));
  ASSERT_TRUE(listeners.add(two.fd()));
  auto to_one = one.connect("127.0.0.1");
  auto to_two = two.connect("127.0.0.2");
  LocalChannel active_two = LocalChannel::dial(TcpEnds::of(to_two.first.get()));
  LocalChannel active_one = LocalChannel::dial(TcpEnds::of(to_one.first.get()));
  LocalChannel passive_one = listeners.take(TcpEnds::of(to_one.second.get()));
  LocalChannel passive_two = listeners.take(TcpEnds::of(to_two.second.get()));
  expect_joined(active_one, passive_one);
  expect_joined(active_two, passive_two);
}

TEST(LocalChannel, ListenersOnAllAddressesAreFound) {
  for (const auto& [listens, dials] :
       {std::pair{"0.0.0.0", "127.0.0.1"}, std::pair{"::", "127.0.0.1"}, std::pair{"::", "::1"}}) {
    Refusals refusals;
    LocalListeners listeners(refusals);
    TcpListener listener(listens);
    if (!listener.bound()) GTEST_SKIP() << "no IPv6";
    ASSERT_TRUE(listeners.add(listener.fd())) << listens;
    auto connection = listener.connect(dials);
    LocalChannel active = LocalChannel::dial(TcpEnds::of(connection.first.get()));
    LocalChannel passive = listeners.take(TcpEnds::of(connection.second.get()));
    expect_joined(active, passive);
  }
}

TEST(LocalChannel, WithoutAListenerThereIsNone) {
  TcpListener listener("127.0.0.1");
  auto connection = listener.connect("127.0.0.1");
  EXPECT_FALSE(LocalChannel::dial(TcpEnds::of(connection.first.get())).valid());
  Refusals refusals;
  LocalListeners listeners(refusals);
  ASSERT_TRUE(listeners.add(listener.fd()));
  EXPECT_FALSE(listeners.take(TcpEnds::of(connection.second.get())).valid())
      << "its peer has not dialled";
  listeners.remove(listener.fd());
  EXPECT_FALSE(LocalChannel::dial(TcpEnds::of(connection.first.get())).valid());
}

TEST(LocalChannel, AnAddressIsServedUntilItsLastListenerHasGone) {
  Refusals refusals;
  LocalListeners listeners(refusals);
  TcpListener listener("127.0.0.1");
  ASSERT_TRUE(listeners.add(listener.fd()));
  ASSERT_TRUE(listeners.add(listener.fd()));
  listeners.remove(listener.fd());
  auto connection = listener.connect("127.0.0.1");
  EXPECT_TRUE(LocalChannel::dial(TcpEnds::of(connection.first.get())).valid());
}

TEST(LocalChannel, AnAddressOfAnotherDeviceIsNotTaken) {
  Refusals refusals;
  LocalListeners first(refusals);
  LocalListeners second(refusals);
  TcpListener listener("127.0.0.1");
  ASSERT_TRUE(first.add(listener.fd()));
  EXPECT_FALSE(second.add(listener.fd()));
}

TEST(LocalChannel, NotConnectedSocketsHaveNone) {
  Refusals refusals;
  LocalListeners listeners(refusals);
  TcpListener listener("127.0.0.1");
  EXPECT_FALSE(LocalChannel::dial(TcpEnds::of(listener.fd())).valid());
  EXPECT_FALSE(listeners.take(TcpEnds::of(listener.fd())).valid());
  EXPECT_FALSE(LocalChannel::dial(TcpEnds::of(-1)).valid());
}

int descriptors() {
  int count = 0;
  for (int fd = 0; fd < 2048; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

// Connections that fail in their handshake leave offers behind that nothing takes.
TEST(LocalChannel, OffersOfPeersThatHaveGoneAreDropped) {
  Refusals refusals;
  LocalListeners listeners(refusals);
  TcpListener listener("127.0.0.1");
  ASSERT_TRUE(listeners.add(listener.fd()));
  auto kept = listener.connect("127.0.0.1");
  LocalChannel kept_active = LocalChannel::dial(TcpEnds::of(kept.first.get()));
  auto probe = listener.connect("127.0.0.1");
  const int before = descriptors();
  for (int i = 0; i < 600; ++i) {
    auto failed = listener.connect("127.0.0.1");
    LocalChannel active = LocalChannel::dial(TcpEnds::of(failed.first.get()));
    EXPECT_TRUE(active.valid());
    active.close();
    (void)listeners.take(TcpEnds::of(probe.second.get()));
  }
  EXPECT_LE(descriptors(), before + 4);
  LocalChannel kept_passive = listeners.take(TcpEnds::of(kept.second.get()));
  expect_joined(kept_active, kept_passive);
}

TEST(LocalChannel, OffersOfSilentPeersAreBounded) {
  Refusals refusals;
  LocalListeners listeners(refusals);
  TcpListener listener("127.0.0.1");
  ASSERT_TRUE(listeners.add(listener.fd()));
  auto probe = listener.connect("127.0.0.1");
  const int before = descriptors();
  std::vector<LocalChannel> silent;
  for (int i = 0; i < 400; ++i) {
    auto connection = listener.connect("127.0.0.1");
    silent.push_back(LocalChannel::dial(TcpEnds::of(connection.first.get())));
    (void)listeners.take(TcpEnds::of(probe.second.get()));
  }
  const int held = descriptors() - before - static_cast<int>(silent.size());
  EXPECT_LE(held, 260);
  EXPECT_EQ(refusals.local_dropped, silent.size() - 256);
  EXPECT_EQ(refusals.local_dropped, silent.size() - 256);
}

TEST(LocalChannel, TakesSeveralMessagesAtOnce) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(sys::socket_pair(SOCK_SEQPACKET, ends), 0);
  LocalChannel from{sys::Descriptor(ends[0])};
  LocalChannel to{sys::Descriptor(ends[1])};
  EXPECT_TRUE(to.receive_several().empty());
  const int file[] = {to.fd()};
  for (std::size_t i = 0; i <= LocalChannel::several; ++i) {
    const std::vector<std::byte> bytes(i + 1, std::byte{7});
    ASSERT_TRUE(from.send(bytes, i == 1 ? std::span<const int>(file) : std::span<const int>()));
  }
  const auto first = to.receive_several();
  ASSERT_EQ(first.size(), LocalChannel::several);
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].bytes.size(), i + 1);
    EXPECT_EQ(first[i].descriptors.size(), i == 1 ? 1U : 0U);
  }
  const auto rest = to.receive_several();
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest.front().bytes.size(), LocalChannel::several + 1);
  EXPECT_TRUE(to.receive_several().empty());
  from.close();
  const auto end = to.receive_several();
  ASSERT_FALSE(end.empty());
  EXPECT_TRUE(end.front().bytes.empty());
}

TEST(LocalChannel, PassesDescriptorsAndBounds) {
  Refusals refusals;
  LocalListeners listeners(refusals);
  TcpListener listener("127.0.0.1");
  ASSERT_TRUE(listeners.add(listener.fd()));
  auto connection = listener.connect("127.0.0.1");
  LocalChannel active = LocalChannel::dial(TcpEnds::of(connection.first.get()));
  LocalChannel passive = listeners.take(TcpEnds::of(connection.second.get()));
  const int files[] = {connection.first.get(), connection.second.get()};
  ASSERT_TRUE(active.send(std::as_bytes(std::span("x")), files));
  const auto message = passive.receive();
  ASSERT_TRUE(message);
  ASSERT_EQ(message->descriptors.size(), 2U);
  EXPECT_NE(message->descriptors[0].get(), files[0]);
  EXPECT_NE(fcntl(message->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_FALSE(passive.receive());
  for (int i = 0; i < 100'000; ++i) active.wake();  // never blocks
  active.close();
  int messages = 0;
  while (true) {
    const auto next = passive.receive();
    ASSERT_TRUE(next) << "an end is always there";
    if (next->bytes.empty()) break;
    ++messages;
  }
  EXPECT_GT(messages, 0);
}

// The other user is made by setuid(2), which only root can do.
TEST(LocalChannel, TheListenerOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  Refusals refusals;
  LocalListeners listeners(refusals);
  TcpListener listener("127.0.0.1");
  ASSERT_TRUE(listeners.add(listener.fd()));
  auto connection = listener.connect("127.0.0.1");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    _exit(LocalChannel::dial(TcpEnds::of(connection.first.get())).valid() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(listeners.take(TcpEnds::of(connection.second.get())).valid());
  EXPECT_EQ(refusals.local_other_user, 1U);
}

}  // namespace
}  // namespace weft::device
