// The thread of this process that waits for clients at all sockets on which the program listens.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/epoll_set.h"
#include "base/event_fd.h"
#include "interpose/descriptor.h"

namespace weft::interpose {

class AcceptQueue;

// Thread-safe. After fork(2) the child makes its own when it first listens. Never destroyed.
class AcceptThread {
 public:
  static AcceptThread& instance();

  // Registers the listening socket `kernel` and returns its cookie. Each watch() from now on makes
  // the thread call AcceptQueue::on_client_waiting() once. Throws Error.
  [[nodiscard]] std::uint64_t add(int kernel, std::weak_ptr<AcceptQueue> queue);
  void watch(int kernel, std::uint64_t cookie);
  // Before `kernel` is closed.
  void remove(int kernel, std::uint64_t cookie);
  [[nodiscard]] std::vector<std::shared_ptr<AcceptQueue>> all();

 private:
  AcceptThread();
  void run();
  [[nodiscard]] std::shared_ptr<AcceptQueue> find(std::uint64_t cookie);

  const EpollSet epoll_;
  const EventFd wake_;  // a queue was added
  std::mutex mutex_;
  std::uint64_t last_cookie_ = 0;
  std::unordered_map<std::uint64_t, std::weak_ptr<AcceptQueue>> queues_;
};

// All queues of this process; none if it never listened.
[[nodiscard]] std::vector<std::shared_ptr<AcceptQueue>> all_accept_queues();

}  // namespace weft::interpose
