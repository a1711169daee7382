// A connection within one host after both ends have left TCP: what its requester and its responder
// share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "device/local/inbox.h"
#include "device/local/local_agreement.h"
#include "device/local/local_channel.h"
#include "device/local/ring.h"
#include "device/queue_pair/queue_pair_parts.h"

namespace weft::device {

// Covered by the queue pair's lock, but for the shared memory itself.
class LocalConnection {
 public:
  // `own`: the inbox of this end, prepared by prepare().
  LocalConnection(QueuePairParts& parts, LocalChannel channel, SharedMemory own,
                  std::uint32_t own_receives, LocalPeer peer);

  // A new inbox for a queue pair, which the peer may look into but not yet access memory by. Not
  // valid where there is no shared memory. `receives`: how many it can publish.
  [[nodiscard]] static SharedMemory make_inbox(const QueuePairParts& parts, std::uint32_t receives);
  // How many receives a queue pair publishes at most: a power of two.
  [[nodiscard]] static std::uint32_t receives_of(const QueuePairParts& parts);

  [[nodiscard]] inbox::Inbox& own() const { return *own_at_; }
  [[nodiscard]] inbox::Inbox& peer() const { return *peer_at_; }
  [[nodiscard]] LocalPeer& other() { return peer_; }
  [[nodiscard]] LocalChannel& channel() { return channel_; }
  [[nodiscard]] RingReader& reader() { return reader_; }
  // The n-th receive since the beginning, as this end or the peer has published it.
  [[nodiscard]] inbox::Receive& own_receive(std::uint64_t number) const;
  [[nodiscard]] inbox::Receive peer_receive(std::uint64_t number) const;

  [[nodiscard]] bool has_room(std::size_t payload_bytes) { return writer_.has_room(payload_bytes); }
  // Publishes a message, and wakes the peer if it has armed for it. has_room() was true.
  void push(const inbox::MessageHeader& header, std::span<const iovec> payload);
  void wake() { channel_.wake(); }

  // Reports the end of the connection to the peer.
  void tell_end(inbox::End end);
  // From now on the peer finds no memory here; returns when its last access is over, or it is gone.
  void close_memory();
  // The same for memory that was withdrawn from the grant table before.
  void await_access() const;

  void abandon_after_fork();

 private:
  QueuePairParts& parts_;
  LocalChannel channel_;
  SharedMemory own_memory_;
  LocalPeer peer_;
  inbox::Inbox* own_at_;
  inbox::Inbox* peer_at_;
  std::uint32_t own_receives_;
  RingWriter writer_;
  RingReader reader_;
};

// Announces an access to the peer's memory while it exists. Between its beginning and its end the
// peer deregisters nothing that a lookup has found.
class LocalAccess {
 public:
  explicit LocalAccess(inbox::Inbox& peer) : peer_(peer) {
    // Sequentially consistent, as what is read next: either the peer sees the announcement, or this
    // end sees that the peer has withdrawn the memory. See GrantTable::withdraw().
    peer_.accessing.store(true, std::memory_order_seq_cst);
  }
  // False once the peer has closed all of its memory.
  [[nodiscard]] bool allowed() const { return peer_.open.load(std::memory_order_seq_cst); }
  ~LocalAccess() { peer_.accessing.store(false, std::memory_order_release); }
  LocalAccess(const LocalAccess&) = delete;
  LocalAccess& operator=(const LocalAccess&) = delete;

 private:
  inbox::Inbox& peer_;
};

}  // namespace weft::device
