// What a connection is made of. Before it is connected, and afterwards, it is the same object.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "connection/control.h"
#include "connection/greeting.h"
#include "connection/requests.h"
#include "connection/waiting.h"
#include "weft/connection/connection.hpp"

namespace weft::connection::detail {

// The next event of that channel. Throws Error(ETIMEDOUT) or Error(ECANCELED): "cannot `what`".
[[nodiscard]] verbs::ConnectionEvent next_event(const verbs::EventChannel& events, Waiter& waiter,
                                                const std::string& what);

class Core {
 public:
  Core(verbs::EventChannel events, verbs::Id id, const Options& options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] const verbs::Id& id() const { return id_; }
  [[nodiscard]] const verbs::EventChannel& events() const { return events_; }
  [[nodiscard]] const verbs::ProtectionDomain& domain() const { return domain_; }
  [[nodiscard]] const verbs::QueuePair& queue_pair() const { return queue_pair_; }
  [[nodiscard]] const verbs::CompletionQueue& completion_queue(Queue queue) const {
    return side(queue).queue;
  }
  [[nodiscard]] int fd(Queue queue) const { return side(queue).channel.fd(); }
  [[nodiscard]] Buffer make_buffer(std::size_t bytes, std::span<std::byte> memory, Access access);

  // --- Connecting
  // Private data as it goes over the wire; EINVAL where it is too long.
  [[nodiscard]] std::vector<std::byte> wrap(const Greeting& greeting);
  // What the peer has sent along.
  void unwrap(std::span<const std::byte> private_data);
  void connect(const Greeting& greeting, Waiter& waiter);
  void accept(const Greeting& greeting, Waiter& waiter);
  void reject(std::span<const std::byte> private_data);
  [[nodiscard]] std::span<const std::byte> peer_private_data() const { return peer_private_data_; }
  [[nodiscard]] bool can_advertise() const { return control_ && control_->has_peer(); }

  // --- Requests
  int post_receive(std::span<const LocalSlice> into, std::uint64_t id);
  int post_send(std::span<const LocalSlice> from, std::uint64_t id, SendFlags flags);
  int post_write(std::span<const LocalSlice> from, const RemoteBuffer& to, std::uint64_t id,
                 SendFlags flags);
  int post_read(std::span<const LocalSlice> into, const RemoteBuffer& from, std::uint64_t id,
                SendFlags flags);
  [[nodiscard]] std::vector<Outcome> await(Queue queue, std::size_t count, Waiter& waiter);

  // --- Advertising
  void advertise(const Advertisement& advertisement);
  [[nodiscard]] std::optional<Advertisement> await_advertisement(Waiter& waiter);

  // --- The end
  void disconnect();
  [[nodiscard]] bool await_disconnect(Waiter& waiter);

 private:
  struct Side {
    verbs::CompletionChannel channel;
    verbs::CompletionQueue queue;
  };

  [[nodiscard]] const Side& side(Queue queue) const {
    return queue == Queue::send ? send_ : receive_;
  }
  [[nodiscard]] Side make_side();
  [[nodiscard]] verbs::ConnectionParameters parameters(std::span<const std::byte> bytes) const;
  // With posting_ held: calls `post` with the id and the flags to post with.
  template <typename Post>
  int post(std::uint64_t id, SendFlags flags, bool ours, const Post& post);
  void post_control(const Control::Write& write);
  // With posting_ held.
  void collect_sends();
  // Polls the queue, and moves at most as many outcomes as are missing to `count`.
  void collect(Queue queue, std::size_t count, std::vector<Outcome>& into);
  // Takes note of what has happened to the connection.
  void look_at_events();

  verbs::EventChannel events_;
  verbs::Id id_;
  verbs::Context context_;
  Options options_;
  bool reads_need_write_access_ = false;  // iWARP adapters place read data by an STag
  std::size_t read_slices_ = 1;
  verbs::ProtectionDomain domain_;
  Side send_;
  Side receive_;
  verbs::QueuePair queue_pair_;
  std::optional<Control> control_;
  std::vector<std::byte> peer_private_data_;
  std::optional<Advertisement> greeted_;  // in the peer's private data

  std::mutex posting_;  // the send queue, its requests and outcomes, the control region
  Requests requests_;
  std::mutex receiving_;  // the outcomes of receives
  std::array<std::deque<Outcome>, 2> outcomes_;
  std::array<std::mutex, 2> awaiting_;  // one thread waits for a queue at a time

  EventFlag ended_;
  bool connected_ = false;
  std::atomic<bool> disconnected_{false};
};

}  // namespace weft::connection::detail
