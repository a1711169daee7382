// DataChannel: the data path of one connected stream. It moves bytes between the program and the
// rings, handles the completions of the queue pair, and sends the control messages that
// FlowControl asks for.
//
// It never waits. Endpoint, which owns it, holds the stream's lock, waits between attempts, and
// arms the completion queue. The first error breaks the channel for good.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "stream/changes.h"
#include "stream/flow_control.h"
#include "stream/greeting_wire.h"
#include "stream/idle_rings.h"
#include "stream/keepalive_timer.h"
#include "stream/maps.h"
#include "stream/pieces.h"
#include "stream/shared_ring.h"
#include "stream/transport.h"
#include "weft/stream/stream.hpp"

namespace weft::stream::detail {

// Not thread-safe: the stream's lock covers it. Calls that copy many bytes release the lock that
// they are given meanwhile; at most one of them may send and one receive at a time.
class DataChannel {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // `changed` is notified when the channel breaks; it must outlive this.
  explicit DataChannel(Changes& changed) : changed_(changed) {}
  // Behind the end of the connection: takes what has completed since the last look.
  ~DataChannel();
  DataChannel(const DataChannel&) = delete;
  DataChannel& operator=(const DataChannel&) = delete;

  // --- Opening
  // Creates the verbs objects and posts the receives. Throws Error.
  void open_transport(const verbs::Id& id, const Options& options);
  // The peer's greeting is known: from now on messages may be sent and received.
  void open_flow(const StreamGreeting& peer, std::uint8_t variant);
  [[nodiscard]] bool has_transport() const { return transport_.has_value(); }
  [[nodiscard]] bool is_open() const { return flow_.has_value(); }
  // Only where has_transport(), or is_open().
  [[nodiscard]] Transport& transport() { return *transport_; }
  [[nodiscard]] const Transport& transport() const { return *transport_; }
  [[nodiscard]] FlowControl& flow() { return *flow_; }
  [[nodiscard]] const FlowControl& flow() const { return *flow_; }

  // --- Progress
  // Handles all completions, and what the peer has changed in shared memory. Returns whether there
  // was anything.
  bool poll();
  // The same where sees_changes(), and messages need not come first. Those that have come with the
  // bytes are handled when no more bytes come, or when the queue raises an event.
  bool look_before_messages();
  // Whether the peer has changed a counter in shared memory that this side waits for, which costs a
  // few loads. If so, the caller must poll().
  [[nodiscard]] bool sees_changes() const;
  // Whether the peer wakes this side when it makes room that this side may wait for, and, unless
  // `for_bytes` is `none`, for its next bytes. A bell is not enough where a message is wanted.
  [[nodiscard]] bool wakes_requested(WakeBy for_bytes) const;
  // Makes the peer do so. The caller must poll() afterwards.
  void request_wakes(WakeBy for_bytes);
  // Whether this side has given its bell to the peer.
  [[nodiscard]] bool has_bell() const { return reader_ && transport_->has_bell(); }
  [[nodiscard]] bool bell_requested() const {
    return reader_ && reader_->wake().made() == WakeBy::bell;
  }
  // A bell that was rung is no request any more. It may have announced nothing that is new.
  void note_bell();
  // From now on the peer does not ring, until it is requested again.
  void stop_bell();
  // How often the peer has rung, or is about to.
  [[nodiscard]] std::uint64_t bells() const { return bells_; }
  // Sends the control messages that are due.
  void send_control();
  // A control message is due that cannot be sent before something completes.
  [[nodiscard]] bool control_waits() const { return flow_ && flow_->control_waits(); }

  // --- Sending. Each moves at most `max` bytes, and returns how many: 0 where nothing can be sent
  // now, or the channel has broken.
  [[nodiscard]] bool can_send() const { return flow_ && (flow_->can_send() || flow_->can_grow()); }
  // Copies into the ring, then sends from there.
  std::size_t send_piece(Lock& lock, Gather& from, std::size_t max);
  // Sends what follows the first `done` bytes, straight from registered memory, which must stay
  // until flow().has_completed() what was taken last.
  std::size_t send_registered(Lock& lock, const verbs::LocalSlice& from, std::size_t done);
  // Copies what follows the first `done` bytes, and writes it to a buffer that the peer has mapped.
  std::size_t write_mapped(std::span<const std::byte> from, const verbs::RemoteSlice& to,
                           std::size_t done);
  // Writes a row of the peer's table of mapped buffers. Returns 0 or an errno. Needs
  // flow().take_message() before.
  int send_row(std::uint32_t row, const Mapping& mapping);
  // Sends a keepalive probe.
  void send_probe();

  // --- Receiving
  [[nodiscard]] std::uint32_t readable() const { return flow_ ? flow_->readable() : 0; }
  [[nodiscard]] bool end_received() const { return flow_ && flow_->end_received(); }
  // Whether this many bytes can be received, or as many as can come before some are received.
  [[nodiscard]] bool has_enough(std::size_t bytes) const {
    return flow_ && (flow_->readable() >= bytes || flow_->is_full());
  }
  // A call waits for this many bytes and receives none meanwhile, so the peer gets all room that
  // there is. 0: the call has ended.
  void want(std::size_t bytes);
  // Copies at most `max` of the bytes that have arrived. With `peek` they stay unread.
  std::size_t receive_some(Lock& lock, Scatter& into, std::size_t max, bool peek);
  // Unread bytes that lie side by side in the ring. There are some if readable() is not 0.
  [[nodiscard]] std::span<const std::byte> unread() const;
  // Returns the first ones to the peer.
  void consume(std::size_t bytes);

  // --- The end
  // 0, or the errno of what broke the connection.
  [[nodiscard]] int error() const { return error_; }
  // The peer has violated the protocol: the owner must disconnect.
  [[nodiscard]] bool is_violated() const { return violated_; }
  void break_off(int error);

  // --- Memory
  [[nodiscard]] IdleRings& idle_rings() { return idle_rings_; }
  // Gives the pages of the rings back that this side writes to, if they are empty and nothing was
  // sent since IdleRings::plan().
  void give_back_pages();

  [[nodiscard]] Maps& local_maps() { return local_maps_; }
  [[nodiscard]] const Maps& peer_maps() const { return peer_maps_; }
  [[nodiscard]] KeepaliveTimer& keepalive() { return keepalive_; }
  [[nodiscard]] const KeepaliveTimer& keepalive() const { return keepalive_; }
  [[nodiscard]] Statistics& statistics() { return statistics_; }
  [[nodiscard]] const Statistics& statistics() const { return statistics_; }

 private:
  // Slots of messages that were counted, whose receives are not posted again yet.
  struct SpentReceives {
    std::array<std::uint32_t, Transport::max_receives_at_once> slots;
    std::size_t count = 0;
  };

  void handle(const verbs::Completion& completion, SpentReceives& spent);
  void received(const verbs::Completion& completion, std::uint32_t slot, SpentReceives& spent);
  void post_spent_receives(SpentReceives& spent);
  void handle_word(std::uint32_t word);
  void handle_wake(std::uint32_t word);
  bool poll_queue();
  [[nodiscard]] bool waits_for_room() const;
  [[nodiscard]] bool is_inherited() const { return generation_ != fork_generation(); }
  bool look();
  bool look_for_room();
  bool look_for_bytes();
  void start_placing();
  void announce_placing();
  void count_sent(std::uint32_t bytes);
  void read(std::uint32_t bytes);
  std::size_t place_piece(Lock& lock, Gather& from, std::size_t max);
  void grow_if_full();
  bool need_send_memory();
  [[nodiscard]] std::uint32_t bytes_without_report() const;
  void ask_for_report();
  void violated();

  Changes& changed_;
  std::optional<Transport> transport_;
  std::optional<FlowControl> flow_;
  // Set once both ends share memory and have confirmed it.
  std::optional<SharedRingReader> reader_;
  std::optional<SharedRingWriter> writer_;
  unsigned generation_ = 0;  // of the process that has opened the channel
  bool may_place_ = false;   // the peer may have offered its ring
  std::uint64_t bells_ = 0;
  Maps local_maps_;  // buffers of this side that the peer may write to
  Maps peer_maps_;   // buffers of the peer that this side may write to
  KeepaliveTimer keepalive_;
  IdleRings idle_rings_;
  Statistics statistics_;
  bool succeeded_ = false;  // something has succeeded during this poll()
  int error_ = 0;
  bool violated_ = false;
};

}  // namespace weft::stream::detail
