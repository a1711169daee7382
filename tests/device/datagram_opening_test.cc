// Packets that arrive at a port while its socket is being opened.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "device/addresses.h"
#include "device/datagram/datagram_socket.h"
#include "device/engine.h"
#include "device/system.h"

namespace weft::device {
namespace {

sockaddr_storage loopback() {
  sockaddr_storage address{};
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
  ipv4.sin_family = AF_INET;
  ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Sends packets to an address while one is wanted, on any of these processors.
class Sender {
 public:
  Sender(const sockaddr_storage& to, const cpu_set_t& processors)
      : thread_([this, to, processors] {
          sched_setaffinity(0, sizeof processors, &processors);
          send_to(to);
        }) {}
  ~Sender() {
    stopping_ = true;
    thread_.join();
  }

  std::atomic<bool> wanted{false};

 private:
  void send_to(sockaddr_storage to) {
    const sys::Descriptor fd(sys::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    std::array<std::byte, 16> bytes{};
    iovec piece{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = sizeof(sockaddr_in);
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    // Packets are lost while the port is closed.
    while (!stopping_) {
      if (wanted) (void)sys::send_message(fd.get(), message);
    }
  }

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// The calling thread and those that it starts have one processor from now on, so that a thread
// which wakes up interrupts another one. Returns what it had.
cpu_set_t use_one_processor() {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  const int processor = sched_getcpu();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(processor < 0 ? 0 : processor), &one);
  sched_setaffinity(0, sizeof one, &one);
  return before;
}

// Opens and closes the socket of one port many times. Returns how many packets were delivered
// before the caller of open() had the socket.
int count_early_packets() {
  const cpu_set_t processors = use_one_processor();
  Engine engine(ProgressMode::automatic);
  std::shared_ptr<DatagramSocket> made;
  DatagramSocket::Plan plan{.address = loopback(), .arrived = [](const DatagramRoute&, Bytes) {}};
  // The progress thread runs from here on.
  EXPECT_EQ(DatagramSocket::open(engine, plan, made), 0);
  plan.address = made->address();
  Sender sender(plan.address, processors);
  int early = 0;
  plan.arrived = [&](const DatagramRoute&, Bytes) {
    if (sender.wanted && !made) ++early;
    sender.wanted = false;
  };
  for (int i = 0; i < 400; ++i) {
    made->close();
    made.reset();
    sender.wanted = true;
    // Another program may have taken the port meanwhile, which makes the test weaker.
    if (DatagramSocket::open(engine, plan, made) != 0) break;
    while (sender.wanted) sched_yield();
  }
  if (made) made->close();
  return early;
}

// What a packet is delivered to may send by the socket at once: a request at a port of rdma_cm's
// UDP space is answered.
TEST(DatagramOpening, PacketsAreDeliveredOnceTheCallerHasTheSocket) {
  int early = 0;
  // What processors it has ends with it.
  std::thread([&] { early = count_early_packets(); }).join();
  EXPECT_EQ(early, 0);
}

}  // namespace
}  // namespace weft::device
