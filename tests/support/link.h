// One direction of a TCP connection in memory, on a virtual clock. It neither reorders nor loses
// bytes; a chain of nodes changes times, the sizes of reads and, on request, bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "support/random.h"

namespace weft::test {

// Bytes that are read together, or the end of the stream. Batches with the same time are read
// together.
struct Batch {
  std::uint64_t at_ns = 0;
  std::vector<std::byte> bytes{};
  bool end = false;
};

class Node {
 public:
  using Emit = std::function<void(Batch)>;
  virtual ~Node() = default;
  // Passes on what has arrived, in order and not before its arrival.
  virtual void pass(Batch batch, const Emit& emit) = 0;
};

using NodePtr = std::unique_ptr<Node>;

[[nodiscard]] NodePtr chunk(std::size_t bytes);                       // reads of a fixed size
[[nodiscard]] NodePtr chunk_random(Random random, std::size_t most);  // of any size up to `most`
[[nodiscard]] NodePtr delay(std::uint64_t ns);
[[nodiscard]] NodePtr jitter(Random random, std::uint64_t most_ns);
// Everything that arrives within one interval is read together at its end.
[[nodiscard]] NodePtr coalesce(std::uint64_t interval_ns);
// Everything from stream offset `offset` on arrives `ns` later.
[[nodiscard]] NodePtr stall(std::uint64_t offset, std::uint64_t ns);
[[nodiscard]] NodePtr corrupt(std::uint64_t offset, std::byte mask = std::byte{0x01});
// The stream ends at this offset.
[[nodiscard]] NodePtr cut(std::uint64_t offset);

class Link {
 public:
  static constexpr std::uint64_t never = UINT64_MAX;

  void add(NodePtr node) { nodes_.push_back(std::move(node)); }
  // Limits the bytes in flight: a small window causes short writes.
  void set_window(std::size_t bytes) { window_bytes_ = bytes; }

  // The number of bytes that send() would accept.
  [[nodiscard]] std::size_t room() const;
  // Returns the number of bytes accepted.
  std::size_t send(std::uint64_t now_ns, Bytes bytes);
  void close(std::uint64_t now_ns);
  [[nodiscard]] bool closed() const { return closed_; }

  [[nodiscard]] std::uint64_t next_ns() const;
  [[nodiscard]] std::optional<Batch> take(std::uint64_t now_ns);

  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }
  // The bytes that the other end has read; TCP has acknowledged as many.
  [[nodiscard]] std::uint64_t delivered_bytes() const { return delivered_bytes_; }

 private:
  void pass(std::size_t node, Batch batch);
  void arrive(Batch batch);

  std::vector<NodePtr> nodes_;
  std::deque<Batch> arrived_;
  std::uint64_t latest_ns_ = 0;
  std::size_t window_bytes_ = SIZE_MAX;
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t delivered_bytes_ = 0;
  bool closed_ = false;
  bool ended_ = false;
};

}  // namespace weft::test
