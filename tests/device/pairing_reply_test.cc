// The end that dials checks who answers: the process of its peer may be gone, and another one may
// listen at its port by now.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <thread>

#include "device/addresses.h"
#include "device/connect/slots.h"
#include "device/raw_end.h"
#include "iwarp/handshake.h"
#include "wire/hello.h"

namespace weft::device {
namespace {

constexpr uid_t another_user = 65534;

// Listens at the port of a number that no queue pair has, and accepts each request.
class FalsePeer {
 public:
  struct Answer {
    std::uint32_t send_psn = 0;
    std::uint32_t receive_psn = 0;
    bool of_another_user = false;
  };

  FalsePeer(const std::string& address, const Answer& answer) : answer_(answer) {
    std::promise<void> listens;
    auto listening = listens.get_future();
    thread_ = std::thread([this, address, &listens] {
      // Sockets belong to the thread's user; the C library would change that of all threads.
      if (answer_.of_another_user) {
        EXPECT_EQ(syscall(SYS_setresuid, another_user, another_user, another_user), 0);
      }
      listen(address);
      listens.set_value();
      while (!stop_) serve();
    });
    listening.get();
  }
  ~FalsePeer() {
    stop_ = true;
    thread_.join();
  }
  FalsePeer(const FalsePeer&) = delete;
  FalsePeer& operator=(const FalsePeer&) = delete;

  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] const ibv_gid& gid() const { return gid_; }
  // Bytes behind the handshake of any connection.
  [[nodiscard]] std::size_t got() const { return got_; }

 private:
  // At the first slot that no process has.
  void listen(const std::string& address) {
    sockaddr_storage at{};
    ASSERT_TRUE(parse_address(address, at));
    gid_ = gid_of(at);
    for (unsigned each = 0; each + 1 < slot::count; ++each) {
      const std::uint32_t number = (each << slot::index_bits) + slot::first_index;
      set_port(at, slot::port_of(number));
      socket_.reset(sys::socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (sys::bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), length_of(at)) != 0) continue;
      ASSERT_EQ(sys::listen(socket_.get(), 16), 0);
      number_ = number;
      return;
    }
    FAIL() << "all slots are taken";
  }

  void serve() {
    constexpr int ms = 10;
    if (sys::poll_readable(socket_.get(), ms) <= 0) return;
    const sys::Descriptor connection(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (accept_request(connection.get())) count_bytes(connection.get());
  }

  [[nodiscard]] bool accept_request(int connection) const {
    iwarp::PassiveHandshake handshake({});
    while (const std::size_t wanted = handshake.wanted_bytes()) {
      std::vector<std::byte> bytes(wanted);
      const auto got = sys::read(connection, bytes.data(), bytes.size());
      if (got <= 0) return false;
      handshake.input(Bytes(bytes).first(static_cast<std::size_t>(got)));
    }
    const auto request = wire::Hello::parse(handshake.peer_private_data());
    if (!request) return false;
    std::vector<std::byte> data(wire::Hello::bytes);
    wire::Hello{.source_qpn = number_,
                .destination_qpn = request->source_qpn,
                .send_psn = answer_.send_psn,
                .receive_psn = answer_.receive_psn,
                .generation = request->generation,
                .capabilities = wire::Hello::has_send_psn}
        .emit(data);
    handshake.accept(1, 1, data);
    const Bytes reply = handshake.output();
    return sys::write(connection, reply.data(), reply.size()) ==
           static_cast<std::ptrdiff_t>(reply.size());
  }

  // Until the other end closes, or this test is over.
  void count_bytes(int connection) {
    std::array<std::byte, 4096> bytes;
    while (!stop_) {
      if (sys::poll_readable(connection, 10) <= 0) continue;
      const auto got = sys::read(connection, bytes.data(), bytes.size());
      if (got <= 0) return;
      got_ += static_cast<std::size_t>(got);
    }
  }

  const Answer answer_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::size_t> got_ = 0;
  std::uint32_t number_ = 0;
  ibv_gid gid_{};
  sys::Descriptor socket_;
  std::thread thread_;
};

class PairingReply : public ::testing::TestWithParam<const char*> {
 protected:
  // Posts a Send to a queue pair whose place `peer` has taken.
  void send_to(const FalsePeer& peer, RawEnd& end, const Buffer& source) {
    ASSERT_EQ(end.to_init(), 0);
    ASSERT_EQ(end.to_rtr(peer.gid(), peer.number()), 0);
    ASSERT_EQ(end.to_rts(), 0);
    ASSERT_EQ(end.send(1, {source.sge(0, 1000)}), 0);
  }
  void expect_refused(const FalsePeer::Answer& answer) {
    const std::uint64_t before = device_->refusals().refused;
    const FalsePeer peer(GetParam(), answer);
    RawEnd end(*device_);
    const auto source = end.buffer(1000);
    send_to(peer, end, *source);
    EXPECT_EQ(end.await().status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_GT(device_->refusals().refused, before);
    EXPECT_EQ(peer.got(), 0U);
  }

  std::unique_ptr<Device> device_ = make_roce_device(GetParam());
};

// The others would prove nothing if this failed.
TEST_P(PairingReply, WithTheRightPsnsOfTheSameUserIsBelieved) {
  const FalsePeer peer(GetParam(), {});
  RawEnd end(*device_);
  const auto source = end.buffer(1000);
  send_to(peer, end, *source);
  const std::uint64_t end_ns = sys::now_ns() + 60'000'000'000;
  while (peer.got() < 1000 && sys::now_ns() < end_ns) std::this_thread::yield();
  EXPECT_GE(peer.got(), 1000U);
}

TEST_P(PairingReply, WithAWrongPsnIsNotBelieved) {
  expect_refused({.send_psn = 1});
  expect_refused({.receive_psn = 1});
}

TEST_P(PairingReply, OfAnotherUserIsNotBelieved) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  expect_refused({.of_another_user = true});
}

INSTANTIATE_TEST_SUITE_P(Addresses, PairingReply, testing::Values("127.0.0.1", "::1"),
                         [](const auto& test) {
                           return std::string(test.index == 0 ? "IPv4" : "IPv6");
                         });

}  // namespace
}  // namespace weft::device
