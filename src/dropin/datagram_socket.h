// A datagram rsocket: a UD queue pair, whose number is found by asking rdma_cm at the UDP port that
// the socket is bound to. Each message is one datagram with the sender's address in front
// (datagram_address.h), and is lost where nothing is there to receive it.
//
// One lock covers it all. Calls that wait poll for themselves, for a short time; then, and while
// somebody watches, the completion queue is armed and the thread that looks after streams does it.
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
#include "stream/pieces.h"
#include "stream/pump.h"
#include "weft/stream.hpp"

namespace weft::dropin {

struct Datagram {
  DatagramAddress from;
  std::size_t bytes = 0;  // all of it, whether or not there was room
};

class DatagramSocket final : public stream::detail::Attendant,
                             public std::enable_shared_from_this<DatagramSocket> {
 public:
  // Binds; of the options the sizes of queues and buffers count. Throws Error.
  [[nodiscard]] static std::shared_ptr<DatagramSocket> open(const stream::Address& local,
                                                            const stream::Options& options);
  ~DatagramSocket() override;
  DatagramSocket(const DatagramSocket&) = delete;
  DatagramSocket& operator=(const DatagramSocket&) = delete;

  // Sends there from now on, and hears nobody else. Never waits.
  void connect(const DatagramAddress& peer);
  // To whom it is connected where there is no address. While a peer is being found, what is sent
  // to it waits in the send queue.
  [[nodiscard]] stream::Outcome send(stream::detail::Gather from,
                                     const std::optional<DatagramAddress>& to,
                                     const Deadline& deadline);
  // What has no room is cut off.
  [[nodiscard]] stream::Outcome receive(stream::detail::Scatter into, const Deadline& deadline,
                                        bool peek, Datagram& datagram);

  [[nodiscard]] DatagramAddress local() const { return local_; }
  [[nodiscard]] std::optional<DatagramAddress> peer();
  [[nodiscard]] std::size_t max_message_bytes() const { return max_message_bytes_; }
  // Of the peer that it is connected to; once.
  [[nodiscard]] int take_error();

  stream::Stream::Readiness watch(stream::Stream::Watcher* watcher);
  void unwatch(stream::Stream::Watcher* watcher);
  [[nodiscard]] stream::Stream::Readiness readiness();
  void attend() noexcept override;
  // Whoever waits fails with ECANCELED; the port is free again.
  void close();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  struct Filled {  // a place of the send or the receive memory
    std::uint32_t place = 0;
    std::size_t bytes = 0;  // of the message
  };
  struct Peer {
    std::optional<verbs::Id> question;                  // while it is being found
    std::shared_ptr<const verbs::AddressHandle> where;  // null before
    std::uint32_t queue_pair = 0;
    std::uint32_t key = 0;
    DatagramAddress source;  // we, as it sees us
    std::vector<Filled> waiting;
    Clock::time_point heard;
  };
  using Peers = std::map<DatagramAddress, Peer>;

  DatagramSocket(const stream::Address& local, const stream::Options& options);
  void prepare(const stream::Options& options);
  void start();

  // --- Peers (datagram_peers.cc)
  Peer& need_peer(const DatagramAddress& address);
  void ask(Peers::iterator peer);
  void make_room_for_peers();
  void look_at_events();
  void handle(const verbs::ConnectionEvent& event, Peers::iterator peer);
  void answer(verbs::ConnectionEvent& event);
  [[nodiscard]] std::shared_ptr<const verbs::AddressHandle> handle_of(const ibv_ah_attr& route);
  void found(Peers::iterator peer, const rdma_ud_param& parameters);
  void lost(Peers::iterator peer, int error);

  // --- Transfers (datagram_transfer.cc)
  void process();
  void arrived(std::uint32_t place, std::uint32_t bytes);
  void post_receive(std::uint32_t place);
  void post_send(Peer& peer, const Filled& filled);
  void arm();
  void tell();
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
  std::optional<verbs::Id> name_;  // what others ask
  verbs::Context context_;
  verbs::ProtectionDomain domain_;
  verbs::CompletionChannel channel_;
  std::optional<verbs::CompletionQueue> queue_;
  std::size_t max_message_bytes_ = 0;
  std::size_t send_place_bytes_ = 0;
  std::size_t receive_place_bytes_ = 0;
  std::optional<verbs::TypedRegion<std::byte>> send_memory_;
  std::optional<verbs::TypedRegion<std::byte>> receive_memory_;
  std::optional<verbs::QueuePair> queue_pair_;
  std::vector<std::uint32_t> free_places_;                           // to send from
  std::vector<std::shared_ptr<const verbs::AddressHandle>> in_use_;  // by place, until it is sent
  std::deque<Filled> arrived_;

  std::optional<DatagramAddress> connected_;
  Peers peers_;

  std::optional<stream::detail::Pump::Token> token_;
  bool armed_ = false;
  int sleepers_ = 0;
  std::vector<stream::Stream::Watcher*> watchers_;
  stream::Stream::Readiness told_;
};

// True as soon as `ready` answers so; false at the deadline.
template <typename Ready>
bool DatagramSocket::wait(Lock& lock, const Deadline& deadline, const Ready& ready) {
  process();
  if (ready()) return true;
  if (deadline.passed()) return false;
  const auto until = Clock::now() + spin_;
  while (Clock::now() < until) {
    lock.unlock();
    sched_yield();  // the other side may need this processor to answer
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
