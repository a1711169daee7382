// A slower network under one TCP connection (Settings::link): keeps what is sent and what is
// received until a link would have carried it.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "faults/link.h"

namespace weft::device {

// Bytes in their order, each with the time at which they may go on.
class DelayedBytes {
 public:
  static constexpr std::uint64_t never_ns = UINT64_MAX;

  void add(std::vector<std::byte> bytes, std::uint64_t due_ns);
  // The next bytes, where they are due. Good until the next call of another function.
  [[nodiscard]] std::span<const std::byte> due(std::uint64_t now_ns) const;
  void remove(std::size_t bytes);
  // When the next bytes are due.
  [[nodiscard]] std::uint64_t next_ns() const {
    return parts_.empty() ? never_ns : parts_.front().due_ns;
  }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  // Beyond it nothing is taken, as by a TCP window that is full. What the parts themselves occupy
  // counts as well: a peer may send single bytes.
  [[nodiscard]] bool full() const { return bytes_ + parts_.size() * part_bytes >= most_bytes; }

  static constexpr std::size_t most_bytes = std::size_t{16} << 20;
  static constexpr std::size_t part_bytes = 96;  // with what the allocator adds to a small buffer

 private:
  struct Part {
    std::vector<std::byte> bytes;
    std::uint64_t due_ns;
  };

  std::deque<Part> parts_;
  std::size_t begin_ = 0;  // of the first part
  std::size_t bytes_ = 0;
};

// What the links of a device have done.
struct LinkCounters {
  std::atomic<std::uint64_t> stalls{0};            // lost segments of streams
  std::atomic<std::uint64_t> lost_datagrams{0};    // also those that found the link full
  std::atomic<std::uint64_t> delayed_bytes{0};     // of streams and datagrams, in both directions
  std::function<void(const std::string&)> report;  // of each loss; may be empty
};

// Used with the lock of the queue pair held.
class StreamLink {
 public:
  // The two directions have generators of their own. `counters` must outlive this object.
  StreamLink(const faults::Link& link, std::uint64_t seed, LinkCounters& counters)
      : sending_(link, seed), receiving_(link, ~seed), counters_(counters) {}

  // Takes all of `pieces`: their number of bytes. -EAGAIN where too much waits, or -EFAULT.
  std::ptrdiff_t take(std::span<const iovec> pieces, std::uint64_t now_ns);
  [[nodiscard]] DelayedBytes& outgoing() { return outgoing_; }

  // The socket has delivered this.
  void arrived(std::span<const std::byte> bytes, std::uint64_t now_ns);
  // The socket delivers nothing more: 0 or -errno.
  void end(std::ptrdiff_t result);
  // Whether the socket is to be read.
  [[nodiscard]] bool reads() const { return !ended_ && !incoming_.full(); }
  // As recvmsg(2), of what is due.
  std::ptrdiff_t deliver(std::span<const iovec> pieces, std::uint64_t now_ns);

  // When to come back: something is due then, or is to be tried again.
  [[nodiscard]] std::uint64_t next_ns(std::uint64_t now_ns) const;

 private:
  [[nodiscard]] std::uint64_t due_ns(faults::LinkSchedule& schedule, std::uint64_t now_ns,
                                     std::size_t bytes);

  faults::LinkSchedule sending_;
  faults::LinkSchedule receiving_;
  LinkCounters& counters_;
  DelayedBytes outgoing_;
  DelayedBytes incoming_;
  bool ended_ = false;
  bool end_delivered_ = false;
  std::ptrdiff_t end_ = 0;
};

}  // namespace weft::device
