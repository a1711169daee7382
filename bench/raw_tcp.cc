#include "raw_tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <functional>
#include <new>
#include <stdexcept>
#include <vector>

#include "peers.h"

namespace weft::bench {

namespace sys = device::sys;

double seconds_since(std::uint64_t start_ns) {
  return static_cast<double>(sys::now_ns() - start_ns) * 1e-9;
}

namespace {

// Memory that begins with a page. Where the destination of a copy lies a few bytes behind its
// source, modulo the page, some processors take 20 times as long. The kernel's side often begins
// with a page as well, and a large std::vector 16 bytes behind one.
class PageBytes {
 public:
  explicit PageBytes(std::size_t bytes)
      : at_(static_cast<std::uint8_t*>(::operator new(bytes, page))) {
    std::fill_n(at_, bytes, std::uint8_t{0});
  }
  ~PageBytes() { ::operator delete(at_, page); }
  PageBytes(const PageBytes&) = delete;
  PageBytes& operator=(const PageBytes&) = delete;
  [[nodiscard]] std::uint8_t* data() const { return at_; }

 private:
  static constexpr std::align_val_t page{4096};
  std::uint8_t* const at_;
};

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

double latency(std::size_t bytes, int iterations, bool asleep) {
  const auto receive = asleep ? receive_asleep : receive_all;
  return run_pair(
      [=](Lines lines) {
        const PageBytes data(bytes);
        const int fd = lines.stream.get();
        if (asleep) let_block(fd);
        std::uint64_t start = 0;
        for (int i = -iterations / 10; i < iterations; ++i) {
          if (i == 0) start = sys::now_ns();
          send_all(fd, data.data(), bytes);
          receive(fd, data.data(), bytes);
        }
        return seconds_since(start) / iterations / 2 * 1e6;
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

double raw_latency(std::size_t bytes, int iterations) {
  return latency(bytes, iterations, false);
}

double raw_sleeping_latency(std::size_t bytes, int iterations) {
  return latency(bytes, iterations, true);
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
