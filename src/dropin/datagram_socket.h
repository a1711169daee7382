// A datagram rsocket: a UD queue pair. Peers find its number by an rdma_cm service resolution at
// the UDP port that the socket is bound to. Each message is one datagram with the sender's address
// in front (datagram_address.h), and is lost if the receiver has no receive request posted.
//
// One lock guards everything. Calls that block poll the completion queue themselves for a short
// time. After that, and while there are watchers, the completion queue is armed and the thread of
// stream's thread handles completions.
#pragma once

#include <sched.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "dropin/datagram_address.h"
#include "dropin/datagram_endpoint.h"
#include "stream/fork_handler.h"
#include "stream/observed.h"
#include "stream/pieces.h"
#include "stream/stream_thread.h"
#include "weft/stream.hpp"

namespace weft::dropin {

struct Datagram {
  DatagramAddress from;
  std::size_t bytes = 0;  // of the whole datagram, even if it was cut
};

// Thread-safe.
class DatagramSocket final : public stream::detail::IoHandler,
                             public std::enable_shared_from_this<DatagramSocket> {
 public:
  // Opens a socket that is bound to `local`. Only the sizes of queues and buffers in `options`
  // matter, the backend and the time to spin. Throws Error.
  [[nodiscard]] static std::shared_ptr<DatagramSocket> open(const stream::Address& local,
                                                            const stream::Options& options);
  ~DatagramSocket() override;
  DatagramSocket(const DatagramSocket&) = delete;
  DatagramSocket& operator=(const DatagramSocket&) = delete;

  // From now on sends to `peer` by default, and receives only from it. Never blocks.
  void connect(const DatagramAddress& peer);
  // Sends to the connected peer if `to` is empty. While a peer is being resolved, datagrams to it
  // stay in the send buffer.
  [[nodiscard]] stream::Transfer send(stream::detail::Gather from,
                                      const std::optional<DatagramAddress>& to,
                                      const Deadline& deadline);
  // Cuts the datagram if there is not enough room.
  [[nodiscard]] stream::Transfer receive(stream::detail::Scatter into, const Deadline& deadline,
                                         bool peek, Datagram& datagram);

  [[nodiscard]] DatagramAddress local() const { return local_; }
  [[nodiscard]] std::optional<DatagramAddress> peer();
  [[nodiscard]] std::size_t max_message_bytes() const { return endpoint_.max_message_bytes(); }
  // Returns the error of the connected peer once, then 0.
  [[nodiscard]] int take_error();

  stream::Stream::Readiness watch(stream::Stream::Watcher* watcher);
  void unwatch(stream::Stream::Watcher* watcher);
  [[nodiscard]] stream::Stream::Readiness readiness();
  void on_io() noexcept override;
  // Calls that block fail with ECANCELED. Frees the port.
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  struct Peer {
    std::optional<verbs::Id> resolving;  // the id of the resolution that is under way
    DatagramRoute route;
    std::vector<FilledPlace> waiting;  // datagrams, until it is resolved
    Clock::time_point last_received;
  };
  using Peers = std::map<DatagramAddress, Peer>;

  DatagramSocket(const stream::Address& local, const stream::Options& options);
  void start();

  // --- Peers (datagram_peers.cc)
  Peer& need_peer(const DatagramAddress& address);
  void resolve(Peers::iterator peer);
  void make_room_for_peers();
  void take_events();
  void handle(const verbs::ConnectionEvent& event, Peers::iterator peer);
  void accept_request(verbs::ConnectionEvent& event);
  void set_route(Peers::iterator peer, const rdma_ud_param& parameters);
  void fail_peer(Peers::iterator peer, int error);

  // --- Transfers (datagram_transfer.cc)
  void process();
  void arrived(std::uint32_t place, std::size_t bytes);
  void arm();
  void notify();
  [[nodiscard]] int report_error();
  void begin_anew_in_child() noexcept;
  [[nodiscard]] stream::Stream::Readiness readiness_now() const;
  template <typename Ready>
  bool wait(Lock& lock, const Deadline& deadline, const Ready& ready);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int error_ = 0;
  std::chrono::microseconds spin_;
  DatagramAddress local_;

  verbs::EventChannel events_;
  std::optional<verbs::Id> listener_;  // receives the resolutions of peers
  DatagramEndpoint endpoint_;
  std::deque<FilledPlace> arrived_;

  std::optional<DatagramAddress> connected_;
  Peers peers_;

  stream::detail::ThreadRegistration registration_;  // destroyed before the descriptors
  stream::detail::Observed observed_;  // while registered: its calls need the stream thread
  bool armed_ = false;
  int sleepers_ = 0;
  std::vector<stream::Stream::Watcher*> watchers_;
  stream::Stream::Readiness reported_;
  stream::detail::ForkHandler fork_handler_{
      this, [](void* self) noexcept { static_cast<DatagramSocket*>(self)->begin_anew_in_child(); }};
};

// Blocks until `ready` returns true, or returns false at the deadline. With the lock held; releases
// it while it blocks.
template <typename Ready>
bool DatagramSocket::wait(Lock& lock, const Deadline& deadline, const Ready& ready) {
  process();
  if (ready()) return true;
  if (deadline.passed()) return false;
  const auto until = Clock::now() + spin_;
  while (Clock::now() < until) {
    lock.unlock();
    sched_yield();  // the peer may need this processor to reply
    lock.lock();
    process();
    if (ready()) return true;
  }
  ++sleepers_;
  arm();
  while (!ready()) {
    const int timeout_ms = deadline.poll_timeout_ms();
    if (timeout_ms < 0) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms));
      if (deadline.passed()) break;
    }
  }
  --sleepers_;
  return ready();
}

}  // namespace weft::dropin
