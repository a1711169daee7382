// The thread of this process that waits for clients at all sockets on which the program listens.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/epoll_set.h"
#include "base/event_fd.h"
#include "interpose/arriving_clients.h"
#include "interpose/descriptor.h"
#include "interpose/kernel_offers.h"

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
  // Not before the next watch(). AcceptQueue::recheck() is called from time to time instead.
  void unwatch(int kernel, std::uint64_t cookie);
  // Before `kernel` is closed.
  void remove(int kernel, std::uint64_t cookie);
  // The same for the requests of clients, which arrive at `requests`: each watch_requests() makes
  // the thread call AcceptQueue::on_requests() once.
  void add_requests(int requests, std::uint64_t cookie);
  void watch_requests(int requests, std::uint64_t cookie);
  void remove_requests(int requests);
  // Clients whose first bytes the thread waits for.
  [[nodiscard]] bool make_room() { return arriving_.make_room(); }
  void await_first_bytes(Descriptor connection, const std::shared_ptr<AcceptQueue>& queue,
                         bool deferred = false);
  [[nodiscard]] ArrivingClients& arriving() { return arriving_; }
  [[nodiscard]] KernelOffers& offers() { return offers_; }
  [[nodiscard]] std::vector<std::shared_ptr<AcceptQueue>> all();

 private:
  using Clock = std::chrono::steady_clock;

  AcceptThread();
  void run();
  void handle(const epoll_event& event);
  [[nodiscard]] std::shared_ptr<AcceptQueue> find(std::uint64_t cookie);

  const EpollSet epoll_;
  const EventFd wake_;  // a queue or a client was added
  ArrivingClients arriving_;
  KernelOffers offers_;
  std::mutex mutex_;
  std::uint64_t last_cookie_ = 0;
  std::unordered_map<std::uint64_t, std::weak_ptr<AcceptQueue>> queues_;
};

// All queues of this process; none if it never listened.
[[nodiscard]] std::vector<std::shared_ptr<AcceptQueue>> all_accept_queues();

// Handlers of fork(2). The child closes its copies of clients that the parent goes on with.
void accept_thread_before_fork();
void accept_thread_after_fork_in_parent();
void accept_thread_after_fork_in_child();

}  // namespace weft::interpose
