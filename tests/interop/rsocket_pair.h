// For programs that check rsocket(7): sockets at the loopback address, and pairs that are
// connected.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "interop/need.h"

inline sockaddr_in loopback(std::uint16_t port_be = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = port_be;
  return address;
}

inline const sockaddr* raw(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

inline int listening(sockaddr_in& address) {
  const int socket = rsocket(AF_INET, SOCK_STREAM, 0);
  NEED(socket >= 0);
  address = loopback();
  NEED(rbind(socket, raw(address), sizeof address) == 0);
  NEED(rlisten(socket, 5) == 0);
  socklen_t bytes = sizeof address;
  NEED(rgetsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
  NEED(bytes == sizeof address && address.sin_port != 0);
  return socket;
}

struct Pair {
  int listener = -1;
  int active = -1;
  int passive = -1;

  explicit Pair(int buffer_bytes = 0, int mappings = 0) {
    sockaddr_in address{};
    listener = listening(address);
    active = rsocket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    for (const int socket : {listener, active}) {
      if (buffer_bytes) {
        NEED(!rsetsockopt(socket, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes));
        NEED(!rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes));
      }
      NEED(!rsetsockopt(socket, SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof mappings));
    }
    auto accepting = std::async(std::launch::async, [this] {
      sockaddr_in peer{};
      socklen_t bytes = sizeof peer;
      const int socket = raccept(listener, reinterpret_cast<sockaddr*>(&peer), &bytes);
      NEED(peer.sin_family == AF_INET && ntohl(peer.sin_addr.s_addr) == INADDR_LOOPBACK);
      sockaddr_in again{};
      NEED(rgetpeername(socket, reinterpret_cast<sockaddr*>(&again), &bytes) == 0);
      NEED(again.sin_port == peer.sin_port && again.sin_addr.s_addr == peer.sin_addr.s_addr);
      return socket;
    });
    NEED(rconnect(active, raw(address), sizeof address) == 0);
    passive = accepting.get();
    NEED(passive >= 0);
  }
  ~Pair() {
    for (const int socket : {active, passive, listener}) {
      if (socket >= 0) NEED(rclose(socket) == 0);
    }
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
};

inline short poll_one(int socket, short events, int timeout_ms = 60'000) {
  pollfd entry{socket, events, 0};
  const int ready = rpoll(&entry, 1, timeout_ms);
  NEED(ready >= 0 && (ready > 0) == (entry.revents != 0));
  return entry.revents;
}

inline int option(int socket, int level, int name) {
  int value = -1;
  socklen_t bytes = sizeof value;
  NEED(rgetsockopt(socket, level, name, &value, &bytes) == 0 && bytes == sizeof value);
  return value;
}

// A call in a thread of its own, which is to block.
template <typename Result>
class Blocked {
 public:
  template <typename Call>
  explicit Blocked(const Call& call)
      : result_(std::async(std::launch::async, [this, call] {
          thread_ = static_cast<int>(syscall(SYS_gettid));
          const Result result = call();
          error_ = errno;
          return result;
        })) {
    while (thread_ == 0 || !is_asleep()) {
      if (is_over()) break;
      std::this_thread::yield();
    }
  }
  [[nodiscard]] bool is_over() const {
    return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  // Waits for its end, and sets errno as the call has.
  [[nodiscard]] Result result() {
    const Result found = result_.get();
    errno = error_;
    return found;
  }
  [[nodiscard]] int thread() const { return thread_; }

 private:
  // The kernel's state of the thread is behind its name, which is in parentheses.
  [[nodiscard]] bool is_asleep() const {
    std::ifstream file("/proc/self/task/" + std::to_string(thread_) + "/stat");
    if (!file) return true;  // where the program has no descriptor left
    std::string text;
    std::getline(file, text);
    const auto end = text.rfind(')');
    return end != std::string::npos && text.compare(end, 3, ") S") == 0;
  }

  std::atomic<int> thread_{0};
  int error_ = 0;
  std::future<Result> result_;
};

// Takes all descriptors of the process, while it exists.
class NoDescriptors {
 public:
  NoDescriptors() {
    NEED(getrlimit(RLIMIT_NOFILE, &usual_) == 0);
    const rlimit few{256, usual_.rlim_max};
    NEED(setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (int made = 0; made >= 0;) {
      made = open("/dev/null", O_RDONLY);
      if (made >= 0) taken_.push_back(made);
    }
  }
  ~NoDescriptors() {
    for (const int each : taken_) close(each);
    NEED(setrlimit(RLIMIT_NOFILE, &usual_) == 0);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit usual_{};
  std::vector<int> taken_;
};
