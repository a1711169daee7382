// The clients that were accepted from the kernel and whose first bytes are not all here yet. Each
// costs a descriptor, and no thread. Their number and their time are bounded, so that clients that
// never finish their request keep no other client out.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/epoll_set.h"
#include "interpose/descriptor.h"
#include "interpose/first_bytes.h"

namespace weft::interpose {

class AcceptQueue;

// Thread-safe. AcceptThread waits for the events of `epoll` and calls on_ready() and
// check_deadlines(), which report clients to their queues without a lock.
class ArrivingClients {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The tokens of clients in `epoll` have this bit.
  static constexpr std::uint64_t token_bit = std::uint64_t{1} << 63;

  explicit ArrivingClients(const EpollSet& epoll) : epoll_(epoll) {}

  // If there are too many clients, closes the oldest one that has sent nothing, else the oldest of
  // all. Returns false if all of them are too young for that: a real client may be among them.
  [[nodiscard]] bool make_room();
  // Waits for the bytes of `connection`, then calls AcceptQueue::on_arrived(). Closes it if it
  // cannot be waited for. `deferred`: the kernel has waited for the first one already
  // (TCP_DEFER_ACCEPT).
  void add(Descriptor connection, const std::shared_ptr<AcceptQueue>& queue, bool deferred);
  // Closes all clients of a queue.
  void remove_all_of(const AcceptQueue& queue);

  void on_ready(std::uint64_t token, std::uint32_t events);
  // Decides about the clients that have had enough time.
  void check_deadlines(Time now);
  // Time::max() if there is no client.
  [[nodiscard]] Time next_deadline();

  // Around fork(2): the list does not change meanwhile, and the child closes its copies.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void after_fork_in_child();

 private:
  struct Client {
    Descriptor connection;
    std::weak_ptr<AcceptQueue> queue;
    const AcceptQueue* key = nullptr;
    Time since;
    Time until;
    std::size_t bytes = 0;  // that have arrived
  };
  using Clients = std::map<std::uint64_t, Client>;  // by token: the oldest first

  [[nodiscard]] Client take_out(Clients::iterator place);
  [[nodiscard]] Clients::iterator replaceable(Time before);

  const EpollSet& epoll_;
  std::mutex mutex_;
  std::uint64_t last_token_ = token_bit;
  Clients clients_;
};

}  // namespace weft::interpose
