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
#include "connection/turns.h"
#include "connection/waiting.h"
#include "weft/connection/connection.hpp"

namespace weft::connection::detail {

// The part of the peer's buffer that a request is about; nothing where it is too small.
[[nodiscard]] std::optional<RemoteBuffer> part_of(const RemoteBuffer& buffer, std::uint64_t offset,
                                                  std::span<const LocalSlice> slices);

class Core {
 public:
  // A completion queue and what wakes for it.
  struct Side {
    verbs::CompletionChannel channel;
    verbs::CompletionQueue queue;
  };

  Core(verbs::EventChannel events, verbs::Id id, const Options& options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] const verbs::Id& id() const { return id_; }
  [[nodiscard]] const verbs::EventChannel& events() const { return events_; }
  [[nodiscard]] const verbs::ProtectionDomain& domain() const { return domain_; }
  [[nodiscard]] const verbs::QueuePair& queue_pair() const { return queue_pair_; }
  [[nodiscard]] const Side& side(Queue queue) const {
    return queue == Queue::send ? send_ : receive_;
  }
  [[nodiscard]] Buffer make_buffer(std::size_t bytes, std::span<std::byte> memory, Access access);

  // --- Connecting
  // Private data as it goes over the wire; EINVAL where it is too long.
  [[nodiscard]] std::vector<std::byte> wrap(const Greeting& greeting);
  // What the peer has sent along.
  void unwrap(std::span<const std::byte> private_data);
  void begin_connecting(const Greeting& greeting);
  void begin_accepting(const Greeting& greeting);
  // Whether that has come to a good end. Throws where it never will.
  [[nodiscard]] bool look_for_connection();
  void reject(std::span<const std::byte> private_data);
  [[nodiscard]] std::span<const std::byte> peer_private_data() const { return peer_private_data_; }
  [[nodiscard]] bool can_advertise() const { return control_ && control_->has_peer(); }

  // --- Requests
  int post_receive(std::span<const LocalSlice> into, std::uint64_t id);
  // The outcome goes to the claim where there is one.
  int post_send(std::span<const LocalSlice> from, std::uint64_t id, SendFlags flags,
                Claim* claim = nullptr);
  int post_write(std::span<const LocalSlice> from, const RemoteBuffer& to, std::uint64_t id,
                 SendFlags flags, Claim* claim = nullptr);
  int post_read(std::span<const LocalSlice> into, const RemoteBuffer& from, std::uint64_t id,
                SendFlags flags, Claim* claim = nullptr);

  // --- Outcomes
  [[nodiscard]] Turns& turns(Queue queue) { return turns_[queue == Queue::send ? 0 : 1]; }
  // Polls the queue, and moves at most as many outcomes as are missing to `count`.
  void collect(Queue queue, std::size_t count, std::vector<Outcome>& into);
  void collect_claims();
  [[nodiscard]] bool is_settled(const Claim& claim);
  // Its outcome, if it is there. Otherwise the common way is the one it will go.
  std::optional<Outcome> give_up(Claim& claim);
  // In the send queue.
  [[nodiscard]] bool has_room();

  // --- Advertising
  void advertise(const Advertisement& advertisement);
  // The next one, if it is there; otherwise sets the time of the next look.
  [[nodiscard]] std::optional<Advertisement> take_advertisement();
  // Readable at that time: a write into our memory wakes nobody.
  [[nodiscard]] int advertisement_fd();

  // --- The end
  void disconnect();
  [[nodiscard]] const EventFlag& ended() const { return ended_; }
  // Looks at what has happened to the connection.
  [[nodiscard]] bool has_ended();
  // Readable while has_ended() may have changed, and from the end on.
  [[nodiscard]] int end_fd();

 private:
  [[nodiscard]] Side make_side();
  [[nodiscard]] verbs::ConnectionParameters parameters(std::span<const std::byte> bytes) const;
  struct Kind {
    bool ours = false;
    Claim* claim = nullptr;
  };
  // With posting_ held: calls `post` with the id and the flags to post with.
  template <typename Post>
  int post(std::uint64_t id, SendFlags flags, const Kind& kind, const Post& post);
  void post_control(const Control::Write& write);
  // With posting_ held.
  void collect_sends();
  [[nodiscard]] std::optional<Advertisement> next_advertisement();

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
  std::array<Turns, 2> turns_;
  Timer look_again_;  // for advertisements
  std::atomic<int> pause_us_{0};

  EventFlag ended_;
  std::mutex ending_;  // end_set_
  std::optional<DescriptorSet> end_set_;
  bool active_ = false;  // we have asked for the connection
  bool connected_ = false;
  std::atomic<bool> disconnected_{false};
};

}  // namespace weft::connection::detail
