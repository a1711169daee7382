#include "raw_tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "page_bytes.h"
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

// From a descriptor that blocks.
void receive_asleep(int fd, std::uint8_t* data, std::size_t bytes) {
  while (bytes > 0) {
    const auto got = ::recv(fd, data, bytes, MSG_WAITALL);
    if (got <= 0) throw std::runtime_error("cannot receive");
    data += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

void let_block(int fd) {
  int off = 0;
  (void)::ioctl(fd, FIONBIO, &off);
}

// Of half round trips in microseconds, of which `samples_ns` has whole ones.
double figure_of(Figure figure, std::vector<std::uint64_t>& samples_ns) {
  constexpr double ns_per_half_us = 2000;
  if (figure == Figure::average) {
    const auto sum = std::accumulate(samples_ns.begin(), samples_ns.end(), std::uint64_t{0});
    return static_cast<double>(sum) / static_cast<double>(samples_ns.size()) / ns_per_half_us;
  }
  const std::size_t count = samples_ns.size();
  const std::size_t rank = figure == Figure::median ? count / 2 : count * 99 / 100;
  const auto at = samples_ns.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(samples_ns.begin(), at, samples_ns.end());
  return static_cast<double>(*at) / ns_per_half_us;
}

double latency(std::size_t bytes, int iterations, bool asleep, Figure figure) {
  const auto receive = asleep ? receive_asleep : receive_all;
  return run_pair(
      [=](Lines lines) {
        const PageBytes data(bytes);
        const int fd = lines.stream.get();
        if (asleep) let_block(fd);
        std::vector<std::uint64_t> samples_ns(static_cast<std::size_t>(iterations));
        std::uint64_t before_ns = sys::now_ns();
        for (int i = -iterations / 10; i < iterations; ++i) {
          send_all(fd, data.data(), bytes);
          receive(fd, data.data(), bytes);
          const std::uint64_t now_ns = sys::now_ns();
          if (i >= 0) samples_ns[static_cast<std::size_t>(i)] = now_ns - before_ns;
          before_ns = now_ns;
        }
        return figure_of(figure, samples_ns);
      },
      [=](Lines lines) {
        const PageBytes data(bytes);
        const int fd = lines.stream.get();
        if (asleep) let_block(fd);
        for (int i = -iterations / 10; i < iterations; ++i) {
          receive(fd, data.data(), bytes);
          send_all(fd, data.data(), bytes);
        }
      });
}

}  // namespace

double raw_latency(std::size_t bytes, int iterations, Figure figure) {
  return latency(bytes, iterations, false, figure);
}

double raw_sleeping_latency(std::size_t bytes, int iterations, Figure figure) {
  return latency(bytes, iterations, true, figure);
}

double raw_rate(std::size_t bytes, int messages) {
  return run_pair(
      [=](Lines lines) {
        const PageBytes data(bytes);
        const std::uint64_t start = sys::now_ns();
        for (int i = 0; i < messages; ++i) send_all(lines.stream.get(), data.data(), bytes);
        (void)lines.receive_value();
        return messages / seconds_since(start);
      },
      [=](Lines lines) {
        const std::size_t room = std::max<std::size_t>(bytes, 65536);
        const PageBytes data(room);
        std::size_t left = bytes * static_cast<std::size_t>(messages);
        while (left > 0) {
          const iovec piece{data.data(), std::min(left, room)};
          const auto got = sys::receive(lines.stream.get(), {&piece, 1});
          if (got > 0) left -= static_cast<std::size_t>(got);
        }
        lines.send_value(1);
      });
}

namespace {

sockaddr_in loopback(in_port_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = port;
  return address;
}

// Makes `count` connections to the port that the other process says.
std::vector<sys::Descriptor> connect_many(const Lines& lines, int count) {
  const sockaddr_in to = loopback(static_cast<in_port_t>(lines.receive_value()));
  std::vector<sys::Descriptor> open;
  for (int i = 0; i < count; ++i) {
    open.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(open.back().get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }
  return open;
}

std::vector<sys::Descriptor> accept_many(const Lines& lines, int count) {
  const sys::Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own = loopback(0);
  socklen_t bytes = sizeof own;
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&own), bytes) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
    throw std::runtime_error("cannot listen");
  }
  lines.send_value(own.sin_port);
  std::vector<sys::Descriptor> open;
  for (int i = 0; i < count; ++i) {
    open.emplace_back(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  return open;
}

// One epoll set of all connections, which tells the ones that have bytes.
class Readable {
 public:
  explicit Readable(const std::vector<sys::Descriptor>& sockets)
      : set_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (const auto& one : sockets) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.fd = one.get();
      const int on = 1;
      (void)::setsockopt(one.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (::epoll_ctl(set_.get(), EPOLL_CTL_ADD, one.get(), &event) != 0) {
        throw std::runtime_error("cannot watch a socket");
      }
    }
  }
  // Takes `bytes` bytes from each socket that has some, and calls `then` with it.
  int take(std::size_t bytes, const std::function<void(int)>& then) {
    std::array<epoll_event, 64> ready;
    const int found = ::epoll_wait(set_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    for (int i = 0; i < found; ++i) {
      const int fd = ready[static_cast<std::size_t>(i)].data.fd;
      receive_all(fd, data_.data(), bytes);
      then(fd);
    }
    return std::max(0, found);
  }

 private:
  sys::Descriptor set_;
  std::array<std::uint8_t, 64> data_{};
};

constexpr std::size_t small = 8;
constexpr int under_way = 2048;

}  // namespace

double raw_connect_rate(int connections) {
  return run_pair(
      [=](Lines lines) {
        const std::uint64_t start = sys::now_ns();
        const auto open = connect_many(lines, connections);
        (void)lines.receive_value();
        return connections / seconds_since(start);
      },
      [=](Lines lines) {
        const auto open = accept_many(lines, connections);
        lines.send_value(1);
      });
}

double raw_turn_rate(int connections, int messages) {
  const int turns = std::max(1, messages / connections);
  return run_pair(
      [=](Lines lines) {
        const auto open = connect_many(lines, connections);
        Readable readable(open);
        std::array<std::uint8_t, small> data{};
        const std::uint64_t start = sys::now_ns();
        for (int turn = 0; turn < turns; ++turn) {
          int waiting = 0;
          for (std::size_t i = 0; i < open.size(); ++i) {
            send_all(open[i].get(), data.data(), small);
            const bool last = i + 1 == open.size();
            if (++waiting < under_way && !last) continue;
            while (waiting > 0) waiting -= readable.take(small, [](int) {});
          }
        }
        const double rate = turns * static_cast<double>(connections) / seconds_since(start);
        lines.send_value(1);
        return rate;
      },
      [=](Lines lines) {
        const auto open = accept_many(lines, connections);
        Readable readable(open);
        std::array<std::uint8_t, small> data{};
        for (int left = turns * connections; left > 0;) {
          left -= readable.take(small, [&](int fd) { send_all(fd, data.data(), small); });
        }
        // A socket that has ended is readable, and would look like an answer.
        (void)lines.receive_value();
      });
}

}  // namespace weft::bench
