// Messages from one end of a connection within a host to the other, through the slots of an inbox.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "device/local/inbox.h"

namespace weft::device {

// Writes into the peer's inbox. Not thread safe.
class RingWriter {
 public:
  explicit RingWriter(inbox::Inbox& peer)
      : peer_(peer), produced_(peer.first_slot), consumed_(produced_) {}

  // Whether a message of that much payload fits now.
  [[nodiscard]] bool has_room(std::size_t payload_bytes) {
    const std::uint64_t needed = produced_ + slots_for(payload_bytes);
    // The last known value is enough most of the time. The peer's line in the cache is read only
    // where it is not.
    return needed - consumed_ <= inbox::slots || look_for_room(needed);
  }
  // Publishes a message; has_room() was true for it. Sets header.slots. False, and no message: the
  // payload is memory of the application that is not mapped any more.
  [[nodiscard]] bool push(inbox::MessageHeader header, std::span<const iovec> payload);
  // The same for a message of one slot, whose payload begins there and has no other part.
  [[nodiscard]] bool push_short(inbox::MessageHeader header, const void* payload,
                                std::size_t bytes);
  // How many slots a message takes.
  [[nodiscard]] static constexpr std::uint32_t slots_for(std::size_t payload_bytes) {
    const std::size_t bytes = payload_bytes + sizeof(inbox::MessageHeader);
    return static_cast<std::uint32_t>((bytes + inbox::Slot::bytes - 1) / inbox::Slot::bytes);
  }
  // Where the next message would lie.
  [[nodiscard]] std::uint64_t position() const { return produced_; }
  // How many slots are used at most while each message is taken before the next one comes, and no
  // message is larger.
  static constexpr std::uint32_t few_slots = 64;
  // The same where messages have several slots each, and so are fewer.
  static constexpr std::uint32_t few_slots_of_long = 24;

 private:
  [[nodiscard]] bool look_for_room(std::uint64_t needed);
  // Where the next message of so many slots lies may be the beginning of the ring.
  void choose_place(std::uint32_t needed) {
    const std::uint32_t sooner = needed > 1 ? few_slots - few_slots_of_long : 0;
    if (produced_ + sooner >= next_look_) begin_again(needed);
  }
  void begin_again(std::uint32_t needed);
  void publish(const inbox::MessageHeader& header);

  inbox::Inbox& peer_;
  std::uint64_t produced_;       // slots
  std::uint64_t consumed_;       // at the last look
  std::uint64_t next_look_ = 0;  // where begin_again() looks whether the ring is empty
};

// Reads from the own inbox. Not thread safe.
class RingReader {
 public:
  explicit RingReader(inbox::Inbox& own) : own_(own), consumed_(own.first_slot) {}

  // Whether next() would find nothing.
  [[nodiscard]] bool is_empty() const {
    const inbox::Slot& first = own_.ring[consumed_ % inbox::slots];
    // The stamp is the number of the slot since the beginning, so what an earlier round has left is
    // never taken for new.
    if (first.stamp.load(std::memory_order_seq_cst) == consumed_ + 1) return false;
    // The second cache line of a short message comes together with the first one then.
    __builtin_prefetch(&first.data[inbox::line_bytes - sizeof first.stamp]);
    return true;
  }
  // Copies the header of the next message, which is there. False: it is not a Send whose payload is
  // in the ring, and next() has to look at it.
  [[nodiscard]] bool look_at_send(inbox::MessageHeader& header) {
    copy_header(header);
    if (header.kind == inbox::Kind::skip) [[unlikely]] {
      if (header.slots < 1 || header.slots > inbox::slots) return false;
      done(header);
      if (is_empty()) return false;
      copy_header(header);
    }
    return header.kind == inbox::Kind::send && header.slots <= inbox::slots &&
           RingWriter::slots_for(header.length_bytes) <= header.slots;
  }
  // The next message. The payload is still in the ring: copy() takes it from there, and done()
  // gives its slots back. Nothing where there is none, or where what is there cannot be a message
  // (then broken() is true).
  [[nodiscard]] std::optional<inbox::MessageHeader> next();
  // Copies `to.size()` bytes of the payload from `offset` on. False: `to` is memory of the
  // application that cannot be written to any more.
  [[nodiscard]] bool copy(std::size_t offset, std::span<std::byte> to) const;
  // Where the message that next() returns begins.
  [[nodiscard]] std::uint64_t position() const { return consumed_; }
  // `header`: as next() returned it.
  void done(const inbox::MessageHeader& header) {
    consumed_ += header.slots;
    // The writer may use the slots again when it sees this, so everything of the message was read
    // before.
    own_.consumed.store(consumed_, std::memory_order_release);
  }
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  [[nodiscard]] std::optional<inbox::MessageHeader> look();
  // The slot may change, the copy does not.
  void copy_header(inbox::MessageHeader& header) const {
    std::memcpy(&header, own_.ring[consumed_ % inbox::slots].data.data(), sizeof header);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  inbox::Inbox& own_;
  std::uint64_t consumed_;
  bool broken_ = false;
};

}  // namespace weft::device
