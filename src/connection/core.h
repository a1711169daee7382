// The core of a connection: queue pair, completion queues, advertisements, and the end of the
// connection. The objects Prepared, Request and Connection hand it on from one to the next.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "connection/awaited_receives.h"
#include "connection/conditions.h"
#include "connection/control.h"
#include "connection/greeting_wire.h"
#include "connection/kept_requests.h"
#include "connection/private_data_wire.h"
#include "connection/requests.h"
#include "weft/connection/connection.hpp"

namespace weft::connection::detail {

// Returns the part of the peer's buffer that a request accesses; nothing if the buffer is too
// small.
[[nodiscard]] std::optional<RemoteBuffer> part_of(const RemoteBuffer& buffer, std::uint64_t offset,
                                                  std::span<const LocalSlice> slices);

// A channel of the device that the options name.
[[nodiscard]] verbs::EventChannel channel_for(const Options& options);

// Thread-safe once it is connected; connecting is for one thread. The destructor disconnects.
class Core {
 public:
  // A completion queue and the channel for its events.
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
  // Encodes the private data with the control greeting in front, if advertisements are enabled.
  // EINVAL if it is too long, EOPNOTSUPP if it needs advertisements that are not enabled.
  [[nodiscard]] std::vector<std::byte> wrap(const Greeting& greeting, CarriedBy message);
  // Decodes the peer's private data; enables advertisements if it contains a control greeting, else
  // disables them.
  void unwrap(std::span<const std::byte> private_data, CarriedBy message);
  void begin_connecting(const Greeting& greeting);
  void begin_accepting(const Greeting& greeting);
  // Handles the next connection event; true once the connection is established. Throws Error or
  // Rejected if it failed.
  [[nodiscard]] bool poll_connected();
  void reject(std::span<const std::byte> private_data);
  [[nodiscard]] std::span<const std::byte> peer_private_data() const { return peer_private_data_; }
  [[nodiscard]] bool can_advertise() const { return control_ && control_->has_peer(); }

  // --- Requests
  // These return 0 or an errno. The outcome goes to `awaited` if it is not null, else to collect().
  // `kept`, if it is not null, is held until the request has completed.
  int post_receive(std::span<const LocalSlice> into, std::uint64_t id,
                   AwaitedRequest* awaited = nullptr, const verbs::KeptSlice* kept = nullptr);
  int post_send(std::span<const LocalSlice> from, std::uint64_t id, SendFlags flags,
                AwaitedRequest* awaited = nullptr, const verbs::KeptSlice* kept = nullptr);
  int post_write(std::span<const LocalSlice> from, const RemoteBuffer& to, std::uint64_t id,
                 SendFlags flags, AwaitedRequest* awaited = nullptr,
                 const verbs::KeptSlice* kept = nullptr);
  int post_read(std::span<const LocalSlice> into, const RemoteBuffer& from, std::uint64_t id,
                SendFlags flags, AwaitedRequest* awaited = nullptr,
                const verbs::KeptSlice* kept = nullptr);

  int post_send_with_immediate(const LocalSlice& from, std::uint32_t immediate, std::uint64_t id,
                               SendFlags flags, const verbs::KeptSlice* kept = nullptr);
  int post_send_with_invalidate(const LocalSlice& from, std::uint32_t rkey, std::uint64_t id,
                                SendFlags flags, const verbs::KeptSlice* kept = nullptr);
  int post_write_with_immediate(const LocalSlice& from, const RemoteBuffer& to,
                                std::uint32_t immediate, std::uint64_t id, SendFlags flags,
                                const verbs::KeptSlice* kept = nullptr);
  int post_fetch_and_add(const LocalSlice& before, const RemoteBuffer& target, std::uint64_t addend,
                         std::uint64_t id, SendFlags flags, const verbs::KeptSlice* kept = nullptr);
  int post_compare_and_swap(const LocalSlice& before, const RemoteBuffer& target,
                            std::uint64_t expected, std::uint64_t desired, std::uint64_t id,
                            SendFlags flags, const verbs::KeptSlice* kept = nullptr);

  // --- Outcomes
  [[nodiscard]] WaitQueue& wait_queue(Queue queue) {
    return wait_queues_[queue == Queue::send ? 0 : 1];
  }
  // Polls the queue and appends outcomes to `into` until it has `count`.
  void collect(Queue queue, std::size_t count, std::vector<Outcome>& into);
  // The same without polling: takes what other threads have polled.
  void take_outcomes(Queue queue, std::size_t count, std::vector<Outcome>& into);
  void poll(Queue queue);
  [[nodiscard]] bool is_settled(const AwaitedRequest& awaited);
  // Stops waiting for a request. Returns its outcome if it has one; otherwise collect() will return
  // it.
  std::optional<Outcome> detach(AwaitedRequest& awaited);
  // True if the send queue has room for another request.
  [[nodiscard]] bool has_room();
  // The same without polling.
  [[nodiscard]] bool has_known_room();

  // --- Advertising
  void advertise(const Advertisement& advertisement);
  // Returns the next advertisement if there is one; otherwise sets the timer for the next call.
  [[nodiscard]] std::optional<Advertisement> take_advertisement();
  // Readable when take_advertisement() should be called again. It is a timer, because an RDMA write
  // of the peer raises no event here.
  [[nodiscard]] int advertisement_fd();

  // --- The end
  void disconnect();
  [[nodiscard]] const EventFlag& ended() const { return end_.flag; }
  // Handles pending connection events; true once the connection has ended. Answers a disconnection
  // by the peer.
  [[nodiscard]] bool has_ended();
  // After the end: requests of the queue are posted whose completions have not been polled, and the
  // time for the device to flush them is not over. The caller polls again when the channel of the
  // queue or flush_fd() is readable.
  [[nodiscard]] bool awaits_flush(Queue queue);
  [[nodiscard]] int flush_fd() const { return end_.flush_timer.fd(); }
  // Readable when has_ended() may have changed, and permanently after the end.
  [[nodiscard]] int end_fd();

 private:
  // When take_advertisement() should be called again. The interval grows while nothing arrives.
  struct AdvertisementPoll {
    Timer timer;
    std::atomic<int> interval_us{0};
  };

  struct End {
    EventFlag flag;
    std::mutex mutex;  // guards set
    std::optional<DescriptorSet> set;
    std::atomic<bool> disconnected{false};  // rdma_disconnect(3) was called
    std::atomic<std::int64_t> receives_under_way{0};
    Timer flush_timer;
    std::atomic<std::int64_t> flush_until_ns{0};  // of the steady clock
  };

  [[nodiscard]] Side make_side();
  // Private data has a fixed length on the wire, where it is padded.
  [[nodiscard]] bool pads_private_data() const;
  void note_end();
  [[nodiscard]] verbs::ConnectionParameters parameters(std::span<const std::byte> bytes) const;
  // Holds the lock of a queue. What the completed requests of the queue have kept is destroyed when
  // the lock is released: that may call the program, which may use the connection again.
  class QueueLock {
   public:
    QueueLock(Core& core, Queue queue);
    ~QueueLock() { released_.swap(of_queue_); }
    QueueLock(const QueueLock&) = delete;
    QueueLock& operator=(const QueueLock&) = delete;

   private:
    std::vector<verbs::KeptSlice>& of_queue_;
    std::vector<verbs::KeptSlice> released_;  // destroyed after lock_
    std::lock_guard<std::mutex> lock_;
  };

  struct Kind {
    bool internal = false;
    AwaitedRequest* awaited = nullptr;
    const verbs::KeptSlice* kept = nullptr;
  };
  // Calls `post` with the wr_id and the flags to post with. posting_ must be held.
  template <typename Post>
  int post(std::uint64_t id, SendFlags flags, const Kind& kind, const Post& post);
  void post_control(const Control::Write& write);
  void report_taken();
  // Polls the send queue and distributes the outcomes. posting_ must be held.
  void collect_sends();
  // The same for receives, until `most` outcomes are there for await(); receiving_ must be held.
  void collect_receives(std::size_t most);
  void take_receive(const verbs::Completion& completion);
  // The lock of the queue must be held.
  void hand_out(Queue queue, std::size_t count, std::vector<Outcome>& into);
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
  // Before the queue pair, and so destroyed after it: what they keep is in use until then.
  KeptRequests kept_requests_;
  AwaitedReceives awaited_receives_;
  verbs::QueuePair queue_pair_;
  std::optional<Control> control_;
  std::vector<std::byte> peer_private_data_;
  std::optional<Advertisement> initial_advertisement_;  // sent with the peer's private data

  // Guards the send queue, its requests and outcomes, what they keep, and the control region.
  std::mutex posting_;
  Requests requests_;
  std::mutex receiving_;  // guards the outcomes of receives, and the awaited ones
  std::array<std::deque<Outcome>, 2> outcomes_;
  std::array<std::vector<verbs::KeptSlice>, 2> released_;  // see QueueLock
  std::array<WaitQueue, 2> wait_queues_;
  AdvertisementPoll advertisement_poll_;

  End end_;
  bool active_ = false;  // this side has sent the connect request
  bool connected_ = false;
};

}  // namespace weft::connection::detail
