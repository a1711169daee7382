#include "device/local/ring.h"

#include <algorithm>
#include <cstring>

#include "base/guarded_memory.h"

namespace weft::device {
namespace {

using inbox::Slot;

// Where a byte of the payload lies: the first slot begins with the header.
struct Position {
  std::uint64_t slot = 0;  // from the first of the message
  std::size_t offset = 0;
};

Position position_of(std::size_t payload_offset) {
  const std::size_t at = payload_offset + sizeof(inbox::MessageHeader);
  return {at / Slot::bytes, at % Slot::bytes};
}

// The number of slots is a power of two, so the division costs nothing.
Slot& slot_at(inbox::Inbox& inbox, std::uint64_t number) {
  return inbox.ring[number % inbox::slots];
}

// Writes the first cache line of a slot last, and with it the stamp: otherwise the reader would
// fetch the line between the two, and the writer would have to take it back.
bool load_backwards(std::byte* at, const std::byte* from, std::size_t bytes) {
  const std::size_t in_line =
      inbox::line_bytes - (reinterpret_cast<std::uintptr_t>(at) % inbox::line_bytes);
  if (bytes <= in_line) return guarded_load(at, from, bytes);
  return guarded_load(at + in_line, from + in_line, bytes - in_line) &&
         guarded_load(at, from, in_line);
}

}  // namespace

bool RingWriter::look_for_room(std::uint64_t needed) {
  consumed_ = peer_.consumed.load(std::memory_order_acquire);
  return needed - consumed_ <= inbox::slots;
}

// Where the reader has taken everything, the next message goes to the beginning of the ring, long
// before its end. So a connection that has few messages under way touches little memory, which
// stays in the caches of the processors even if there are a thousand such connections. To look
// whether the ring is empty takes the peer's line from its cache, so it is done once for many
// slots.
void RingWriter::begin_again(std::uint32_t needed) {
  next_look_ = produced_ + few_slots;
  const auto used = static_cast<std::uint32_t>(produced_ % inbox::slots);
  // The message must not cover the slot that says where it is.
  if (used < (needed > 1 ? few_slots_of_long : few_slots) || needed > used) return;
  consumed_ = peer_.consumed.load(std::memory_order_acquire);
  if (consumed_ != produced_) return;
  const inbox::MessageHeader header{.kind = inbox::Kind::skip,
                                    .slots = static_cast<std::uint16_t>(inbox::slots - used)};
  Slot& first = slot_at(peer_, produced_);
  std::memcpy(first.data.data(), &header, sizeof header);
  first.stamp.store(produced_ + 1, std::memory_order_release);
  produced_ += header.slots;
  next_look_ = produced_ + few_slots;
}

// The first slot's stamp is written last: it makes the whole message visible. The other slots of a
// message have none; what they hold of earlier rounds is never the number that a reader expects.
bool RingWriter::push(inbox::MessageHeader header, std::span<const iovec> payload) {
  std::size_t bytes = 0;
  for (const auto& piece : payload) bytes += piece.iov_len;
  header.slots = static_cast<std::uint16_t>(slots_for(bytes));
  if (payload.size() == 1 && bytes <= inbox::first_payload_bytes) {
    return push_short(header, payload.front().iov_base, bytes);
  }
  choose_place(header.slots);
  std::size_t offset = 0;
  for (const auto& piece : payload) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    for (std::size_t left = piece.iov_len; left > 0;) {
      const Position to = position_of(offset);
      const std::size_t part = std::min(left, Slot::bytes - to.offset);
      std::byte* const at = slot_at(peer_, produced_ + to.slot).data.data() + to.offset;
      // Nothing is visible yet: the stamp is missing, and the slots are written again by the next
      // message.
      if (!(to.slot == 0 ? load_backwards(at, from, part) : guarded_load(at, from, part))) {
        return false;
      }
      from += part;
      offset += part;
      left -= part;
    }
  }
  publish(header);
  return true;
}

// The second cache line first: see load_backwards().
bool RingWriter::push_short(inbox::MessageHeader header, const void* payload, std::size_t bytes) {
  constexpr std::size_t in_line = inbox::line_bytes - offsetof(Slot, data) - sizeof header;
  header.slots = 1;
  choose_place(1);
  std::byte* const at = slot_at(peer_, produced_).data.data() + sizeof header;
  const auto* const from = static_cast<const std::byte*>(payload);
  if (bytes > in_line && !guarded_load(at + in_line, from + in_line, bytes - in_line)) return false;
  if (!guarded_load(at, from, std::min(bytes, in_line))) return false;
  publish(header);
  return true;
}

void RingWriter::publish(const inbox::MessageHeader& header) {
  Slot& first = slot_at(peer_, produced_);
  std::memcpy(first.data.data(), &header, sizeof header);
  const std::uint64_t stamp = produced_ + 1;
  produced_ += header.slots;
  // Sequentially consistent, as the flags that are looked at next: LocalConnection::announce().
  first.stamp.store(stamp, std::memory_order_seq_cst);
}

// A peer that writes one skip after the other does not keep the reader here.
std::optional<inbox::MessageHeader> RingReader::next() {
  // One object, so that nothing is copied.
  auto found = look();
  if (found && found->kind == inbox::Kind::skip) [[unlikely]] {
    done(*found);
    found = look();
    if (found && found->kind == inbox::Kind::skip) found.reset();
  }
  return found;
}

std::optional<inbox::MessageHeader> RingReader::look() {
  if (is_empty()) return std::nullopt;
  inbox::MessageHeader header;
  copy_header(header);
  const bool fits =
      header.slots >= 1 && header.slots <= inbox::slots && header.kind <= inbox::Kind::skip;
  const bool payload_fits = header.kind != inbox::Kind::send ||
                            RingWriter::slots_for(header.length_bytes) <= header.slots ||
                            (header.flags & inbox::flag_too_long) != 0;
  broken_ = !fits || !payload_fits;
  if (broken_) return std::nullopt;
  return header;
}

bool RingReader::copy(std::size_t offset, std::span<std::byte> to) const {
  if (offset == 0 && to.size() <= inbox::first_payload_bytes) {
    const std::byte* const from = slot_at(own_, consumed_).data.data();
    const bool done = guarded_store(to.data(), from + sizeof(inbox::MessageHeader), to.size());
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return done;
  }
  while (!to.empty()) {
    const Position from = position_of(offset);
    const std::size_t part = std::min(to.size(), Slot::bytes - from.offset);
    const std::byte* const at = slot_at(own_, consumed_ + from.slot).data.data() + from.offset;
    if (!guarded_store(to.data(), at, part)) return false;
    offset += part;
    to = to.subspan(part);
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return true;
}

}  // namespace weft::device
