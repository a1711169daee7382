// A connection within one host after both ends have left TCP: what its requester and its responder
// share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "device/local/inbox.h"
#include "device/local/local_agreement.h"
#include "device/local/local_wire.h"
#include "device/local/remote_copy.h"
#include "device/local/ring.h"
#include "device/queue_pair/queue_pair_parts.h"

namespace weft::device {

// Covered by the queue pair's lock, but for the shared memory itself.
class LocalConnection {
 public:
  // The places for published receives in an inbox, the process of the peer, and whether one of the
  // two processes cannot reach the other's memory (staging.h).
  struct Peer {
    std::shared_ptr<const PeerProcess> process;
    std::uint32_t receives = 0;
    bool staged = false;
  };
  // The inbox of this end is prepared by make_inbox() or prepare().
  LocalConnection(QueuePairParts& parts, std::unique_ptr<LocalWire> wire, Peer peer);
  ~LocalConnection() { wire_->leave(writer_.position()); }
  LocalConnection(const LocalConnection&) = delete;
  LocalConnection& operator=(const LocalConnection&) = delete;

  // A new inbox for a queue pair, which the peer may look into but not yet access memory by. Not
  // valid where there is no shared memory. `receives`: how many it can publish.
  [[nodiscard]] static SharedMemory make_inbox(const QueuePairParts& parts, std::uint32_t receives);
  static void prepare(const QueuePairParts& parts, inbox::Inbox& own);
  // How many receives a queue pair publishes at most: a power of two.
  [[nodiscard]] static std::uint32_t receives_of(const QueuePairParts& parts);

  [[nodiscard]] inbox::Inbox& own() const { return *own_at_; }
  [[nodiscard]] inbox::Inbox& peer() const { return *peer_at_; }
  [[nodiscard]] const PeerProcess& process() const { return *peer_.process; }
  [[nodiscard]] const GrantView& grants() const { return peer_.process->grants(); }
  [[nodiscard]] RemoteCopy& remote() { return remote_; }
  [[nodiscard]] LocalWire& wire() { return *wire_; }
  [[nodiscard]] bool staged() const { return peer_.staged; }
  // The staging areas: for requests of the peer, and for those of this end.
  [[nodiscard]] std::span<std::byte> own_staging() const;
  [[nodiscard]] std::span<std::byte> peer_staging() const;
  // The peer has left TCP as well, and has not closed its memory.
  [[nodiscard]] bool peer_is_open() { return look_at_peer() != 0; }
  // The same, and it does not wait for the end of its own requests only.
  [[nodiscard]] bool peer_takes_requests() {
    const std::uint32_t open = look_at_peer();
    return open != 0 && open != inbox::Inbox::closing;
  }
  // The peer finds receives for our messages itself: inbox::Receives::matched, as it was when
  // this end first found the inbox open, and so complete. A peer that changes it later is not
  // followed.
  [[nodiscard]] bool peer_matches() const { return peer_matches_.value_or(false); }
  // The position behind the last message that push() has published.
  [[nodiscard]] std::uint64_t pushed() const { return writer_.position(); }
  // Whether the peer has taken all messages before this position.
  [[nodiscard]] bool taken(std::uint64_t position) const {
    return peer_at_->consumed.load(std::memory_order_acquire) >= position;
  }
  [[nodiscard]] RingReader& reader() { return reader_; }
  // The n-th receive since the beginning, as this end or the peer has published it.
  [[nodiscard]] inbox::Receive& own_receive(std::uint64_t number) const;
  [[nodiscard]] inbox::FurtherSlices& own_further_slices(std::uint64_t number) const;
  [[nodiscard]] inbox::Receive peer_receive(std::uint64_t number) const;
  // A piece of such a receive, which has more than one; below inbox::direct_slices.
  [[nodiscard]] iwarp::LocalSlice peer_slice(std::uint64_t number, std::uint32_t piece) const;

  [[nodiscard]] bool has_room(std::size_t payload_bytes) { return writer_.has_room(payload_bytes); }
  // Publishes a message, and wakes the peer if it has armed for it. has_room() was true.
  [[nodiscard]] bool push(const inbox::MessageHeader& header, std::span<const iovec> payload);
  // The same for a payload of at most inbox::first_payload_bytes.
  [[nodiscard]] bool push_short(const inbox::MessageHeader& header, const void* payload) {
    if (!writer_.push_short(header, payload, header.length_bytes)) return false;
    announce(header);
    return true;
  }
  void wake() { wire_->wake(); }

  // Reports the end of the connection to the peer.
  void report_end(inbox::End end);
  // From now on the peer finds no memory here; returns when its last access is over: await_copy().
  void close_memory();
  // The same for memory that was withdrawn from the grant table before.
  void await_access() const;

  void abandon_after_fork();

 private:
  // The message is visible before the flag is read, and the peer sets the flag before it looks for
  // messages a last time: one of the two notices the other.
  void announce(const inbox::MessageHeader& header) {
    const inbox::Armed armed = peer_at_->armed.load(std::memory_order_seq_cst);
    // The peer polls, or was woken already: no system call.
    if (armed != inbox::Armed::no) announce_to(armed, header);
  }
  void announce_to(inbox::Armed armed, const inbox::MessageHeader& header);
  std::uint32_t look_at_peer() {
    const std::uint32_t open = peer_at_->open.load(std::memory_order_acquire);
    if (open != 0 && !peer_matches_) peer_matches_ = peer_at_->receives.matched != 0;
    return open;
  }

  std::unique_ptr<LocalWire> wire_;
  Peer peer_;
  inbox::Inbox* own_at_;
  inbox::Inbox* peer_at_;
  std::uint32_t own_receives_;
  inbox::Receive* own_published_;
  const inbox::Receive* peer_published_;
  std::optional<bool> peer_matches_;  // nothing before the peer is open
  RingWriter writer_;
  RingReader reader_;
  RemoteCopy remote_;
};

}  // namespace weft::device
