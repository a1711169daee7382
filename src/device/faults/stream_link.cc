#include "device/faults/stream_link.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/guarded_memory.h"

namespace weft::device {

void DelayedBytes::add(std::vector<std::byte> bytes, std::uint64_t due_ns) {
  if (bytes.empty()) return;
  bytes_ += bytes.size();
  parts_.push_back({std::move(bytes), due_ns});
}

std::span<const std::byte> DelayedBytes::due(std::uint64_t now_ns) const {
  if (next_ns() > now_ns) return {};  // also where there is nothing
  if (parts_.empty()) return {};
  return std::span(parts_.front().bytes).subspan(begin_);
}

void DelayedBytes::remove(std::size_t bytes) {
  bytes_ -= bytes;
  begin_ += bytes;
  if (begin_ < parts_.front().bytes.size()) return;
  parts_.pop_front();
  begin_ = 0;
}

// The bytes are the application's or those of the protocol core, which may change them after this
// call. The application may have unmapped its memory.
std::ptrdiff_t StreamLink::take(std::span<const iovec> pieces, std::uint64_t now_ns) {
  if (outgoing_.full()) return -EAGAIN;
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  std::vector<std::byte> copy(bytes);
  std::byte* to = copy.data();
  for (const iovec& piece : pieces) {
    if (piece.iov_len > 0 && !guarded_load(to, piece.iov_base, piece.iov_len)) return -EFAULT;
    to += piece.iov_len;
  }
  outgoing_.add(std::move(copy), due_ns(sending_, now_ns, bytes));
  return static_cast<std::ptrdiff_t>(bytes);
}

void StreamLink::arrived(std::span<const std::byte> bytes, std::uint64_t now_ns) {
  incoming_.add({bytes.begin(), bytes.end()}, due_ns(receiving_, now_ns, bytes.size()));
}

std::uint64_t StreamLink::due_ns(faults::LinkSchedule& schedule, std::uint64_t now_ns,
                                 std::size_t bytes) {
  const std::uint64_t lost_before = schedule.lost();
  const std::uint64_t due_ns = schedule.stream_due_ns(now_ns, bytes);
  const std::uint64_t lost = schedule.lost() - lost_before;
  counters_.stalls += lost;
  counters_.delayed_bytes += bytes;
  if (lost > 0 && counters_.report) {
    counters_.report("a connection stalls, because the link has lost " + std::to_string(lost) +
                     (lost == 1 ? " segment" : " segments"));
  }
  return due_ns;
}

void StreamLink::end(std::ptrdiff_t result) {
  ended_ = true;
  end_ = result;
}

// The end of the stream comes behind its last byte.
std::ptrdiff_t StreamLink::deliver(std::span<const iovec> pieces, std::uint64_t now_ns) {
  std::size_t delivered = 0;
  for (const iovec& piece : pieces) {
    auto* const to = static_cast<std::byte*>(piece.iov_base);
    std::size_t filled = 0;
    while (filled < piece.iov_len) {
      const auto part = incoming_.due(now_ns);
      const std::size_t bytes = std::min(part.size(), piece.iov_len - filled);
      if (bytes == 0) break;
      if (!guarded_store(to + filled, part.data(), bytes)) return -EFAULT;
      incoming_.remove(bytes);
      filled += bytes;
    }
    delivered += filled;
    if (filled < piece.iov_len) break;
  }
  if (delivered > 0) return static_cast<std::ptrdiff_t>(delivered);
  if (!ended_ || incoming_.size() > 0) return -EAGAIN;
  end_delivered_ = true;
  return end_;
}

// Bytes that are due in the outgoing direction did not find room in the socket, so they are tried
// again after a moment. What has come in and is due, or the end of the stream, was left by a call
// that delivers a bounded amount; the pause lets other connections have their turn.
std::uint64_t StreamLink::next_ns(std::uint64_t now_ns) const {
  constexpr std::uint64_t retry_ns = 1'000'000;
  constexpr std::uint64_t turn_ns = 10'000;
  const bool ends = ended_ && !end_delivered_ && incoming_.size() == 0;
  if (ends || incoming_.next_ns() <= now_ns) return now_ns + turn_ns;
  const std::uint64_t outgoing_ns =
      outgoing_.next_ns() <= now_ns ? now_ns + retry_ns : outgoing_.next_ns();
  return std::min(outgoing_ns, incoming_.next_ns());
}

}  // namespace weft::device
