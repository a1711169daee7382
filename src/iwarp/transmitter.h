// The way out: FPDUs that are built but not yet taken by TCP. Headers, trailers and small payloads
// stand in one arena; large payloads are referred to where they are.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace weft::iwarp {

class Transmitter {
 public:
  // FPDUs up to this payload are copied into the arena: one iovec for many of them is cheaper than
  // an iovec each (measured; see docs/performance.md).
  static constexpr std::size_t copy_limit_bytes = 2048;
  static constexpr std::size_t arena_bytes = 256 * 1024;
  // One gather: enough for TCP to be busy, small enough for the checksummed bytes to stay in cache.
  static constexpr std::size_t burst_bytes = 256 * 1024;
  static constexpr std::size_t max_pieces = 256;

  struct Options {
    bool crc = true;
    bool markers = false;
    std::size_t mulpdu_bytes = 1442;
  };

  Transmitter() = default;
  void configure(const Options& options) { options_ = options; }
  void set_mulpdu_bytes(std::size_t bytes) { options_.mulpdu_bytes = bytes; }
  [[nodiscard]] std::size_t mulpdu_bytes() const { return options_.mulpdu_bytes; }

  // Whether one more FPDU of any size may be added now.
  [[nodiscard]] bool has_room() const;

  // Adds one FPDU: a DDP header, then the payload. With CRCs payload of any size is copied: others
  // may change the memory before TCP has taken it, and the CRC must match what is sent.
  void add(Bytes ddp_header, std::span<const iovec> payload);

  [[nodiscard]] bool empty() const { return first_ == pieces_.size(); }
  // What goes out next. Valid until the next call of any other member.
  [[nodiscard]] std::span<const iovec> pending() const;
  void advance(std::size_t bytes);

  // Positions in the stream of FPDUs, from 0: after the last FPDU added, and after the last byte
  // that TCP took.
  [[nodiscard]] std::uint64_t end_position() const { return end_; }
  [[nodiscard]] std::uint64_t taken_position() const { return taken_; }

  // The memory [base, base + bytes) goes away: what still refers to it is copied.
  void forget(const std::byte* base, std::size_t bytes);
  // As forget(), for all memory that is not the transmitter's own.
  void detach();

  void clear();

 private:
  [[nodiscard]] std::byte* reserve(std::size_t bytes);
  void append(const std::byte* at, std::size_t bytes);
  void copy_piece(iovec& piece);
  void add_marked(Bytes ddp_header, std::span<const iovec> payload, std::size_t payload_bytes);

  Options options_;
  std::unique_ptr<std::byte[]> arena_;
  std::size_t arena_used_ = 0;
  std::vector<iovec> pieces_;
  std::size_t first_ = 0;    // pieces before this one are gone
  std::size_t pending_ = 0;  // bytes not yet taken
  std::vector<std::unique_ptr<std::byte[]>> copies_;
  std::uint64_t end_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace weft::iwarp
