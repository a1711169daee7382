#include "raw_udp.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <stdexcept>

#include "device/addresses.h"
#include "page_bytes.h"
#include "peers.h"
#include "raw_tcp.h"

namespace weft::bench {

namespace sys = device::sys;

namespace {

constexpr std::size_t at_once = 32;

// Of 127.0.0.1, at a port that the kernel chooses.
sys::Descriptor bound_socket(sockaddr_storage& address) {
  sys::Descriptor socket(sys::socket(AF_INET, SOCK_DGRAM, 0));
  if (!device::parse_address("127.0.0.1", address) ||
      sys::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sockaddr_in)) < 0 ||
      sys::local_address(socket.get(), &address) < 0) {
    throw std::runtime_error("cannot open a UDP socket");
  }
  return socket;
}

// All datagrams of a call share one buffer, because no program reads their bytes.
struct Batch {
  explicit Batch(std::size_t bytes) : data(bytes), piece{data.data(), bytes} {
    for (mmsghdr& one : messages) {
      one.msg_hdr.msg_iov = &piece;
      one.msg_hdr.msg_iovlen = 1;
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  const PageBytes data;
  iovec piece;
  std::array<mmsghdr, at_once> messages{};
};

double send_all(const Lines& lines, std::size_t bytes, int datagrams) {
  const auto port = static_cast<std::uint16_t>(lines.receive_value());
  sockaddr_storage address{};
  const sys::Descriptor socket = bound_socket(address);
  device::set_port(address, port);
  const auto* peer = reinterpret_cast<const sockaddr*>(&address);
  if (sys::connect(socket.get(), peer, sizeof(sockaddr_in)) < 0) {
    throw std::runtime_error("cannot connect a UDP socket");
  }
  Batch batch(bytes);
  const std::uint64_t start_ns = sys::now_ns();
  int sent = 0;
  while (sent < datagrams) {
    const int now = ::sendmmsg(socket.get(), batch.messages.data(), at_once, 0);
    if (now < 0) throw std::runtime_error("cannot send datagrams");
    sent += now;
  }
  const double rate = sent / seconds_since(start_ns);
  lines.send_value(0);
  return rate;
}

void receive_all(const Lines& lines, std::size_t bytes) {
  sockaddr_storage address{};
  const sys::Descriptor socket = bound_socket(address);
  Batch batch(bytes);
  lines.send_value(device::port_of(address));
  char end = 0;
  while (::recv(lines.control, &end, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
    (void)::recvmmsg(socket.get(), batch.messages.data(), at_once, MSG_DONTWAIT, nullptr);
  }
}

}  // namespace

double raw_datagram_rate(std::size_t bytes, int datagrams) {
  return run_pair([=](Lines lines) { return send_all(lines, bytes, datagrams); },
                  [=](Lines lines) { receive_all(lines, bytes); });
}

}  // namespace weft::bench
