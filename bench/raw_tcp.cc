#include "raw_tcp.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "peers.h"

namespace weft::bench {

namespace sys = device::sys;

double seconds_since(std::uint64_t start_ns) {
  return static_cast<double>(sys::now_ns() - start_ns) * 1e-9;
}

namespace {

void send_all(int fd, std::uint8_t* data, std::size_t bytes) {
  while (bytes > 0) {
    const iovec piece{data, bytes};
    const auto sent = sys::send(fd, {&piece, 1});
    if (sent <= 0) continue;
    data += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

void receive_all(int fd, std::uint8_t* data, std::size_t bytes) {
  while (bytes > 0) {
    const iovec piece{data, bytes};
    const auto got = sys::receive(fd, {&piece, 1});
    if (got <= 0) continue;
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace

double raw_latency(std::size_t bytes, int iterations) {
  return run_pair(
      [=](Lines lines) {
        std::vector<std::uint8_t> data(bytes);
        const int fd = lines.stream.get();
        std::uint64_t start = 0;
        for (int i = -iterations / 10; i < iterations; ++i) {
          if (i == 0) start = sys::now_ns();
          send_all(fd, data.data(), bytes);
          receive_all(fd, data.data(), bytes);
        }
        return seconds_since(start) / iterations / 2 * 1e6;
      },
      [=](Lines lines) {
        std::vector<std::uint8_t> data(bytes);
        const int fd = lines.stream.get();
        for (int i = -iterations / 10; i < iterations; ++i) {
          receive_all(fd, data.data(), bytes);
          send_all(fd, data.data(), bytes);
        }
      });
}

double raw_rate(std::size_t bytes, int messages) {
  return run_pair(
      [=](Lines lines) {
        std::vector<std::uint8_t> data(bytes);
        const std::uint64_t start = sys::now_ns();
        for (int i = 0; i < messages; ++i) send_all(lines.stream.get(), data.data(), bytes);
        (void)lines.receive_value();
        return messages / seconds_since(start);
      },
      [=](Lines lines) {
        std::vector<std::uint8_t> data(std::max<std::size_t>(bytes, 65536));
        std::size_t left = bytes * static_cast<std::size_t>(messages);
        while (left > 0) {
          const iovec piece{data.data(), std::min(left, data.size())};
          const auto got = sys::receive(lines.stream.get(), {&piece, 1});
          if (got > 0) left -= static_cast<std::size_t>(got);
        }
        lines.send_value(1);
      });
}

double raw_connect_rate(int connections) {
  return run_pair(
      [=](Lines lines) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = static_cast<in_port_t>(lines.receive_value());
        std::vector<sys::Descriptor> open;
        const std::uint64_t start = sys::now_ns();
        for (int i = 0; i < connections; ++i) {
          open.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
          if (::connect(open.back().get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) !=
              0) {
            throw std::runtime_error("cannot connect");
          }
        }
        (void)lines.receive_value();
        return connections / seconds_since(start);
      },
      [=](Lines lines) {
        const sys::Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in own{};
        own.sin_family = AF_INET;
        own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof own;
        if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&own), bytes) != 0 ||
            ::listen(listener.get(), SOMAXCONN) != 0 ||
            ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
          throw std::runtime_error("cannot listen");
        }
        lines.send_value(own.sin_port);
        std::vector<sys::Descriptor> open;
        for (int i = 0; i < connections; ++i) {
          open.emplace_back(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        }
        lines.send_value(1);
      });
}

}  // namespace weft::bench
