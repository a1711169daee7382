// Buffers FPDUs that are built and not yet taken by TCP (RFC 5044 §4). Headers, trailers and small
// payloads are copied into one arena; large payloads are referred to in place. The arena is given
// back when TCP has taken everything.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer_pool.h"
#include "base/bytes.h"

namespace weft::iwarp {

class Transmitter {
 public:
  // Payloads up to this size are copied into the arena: one iovec for many FPDUs is cheaper than
  // one for each (measured; see docs/performance.md).
  static constexpr std::size_t copy_limit_bytes = 2048;
  static constexpr std::size_t arena_bytes = 256 * 1024;
  // The limit of one gather: enough to keep TCP busy, small enough for the bytes to stay in the
  // cache between checksum and copy.
  static constexpr std::size_t burst_bytes = 256 * 1024;
  static constexpr std::size_t max_pieces = 256;
  // Of FPDUs that find nothing else to be sent. One or two small ones need no arena.
  static constexpr std::size_t small_bytes = 256;

  struct Options {
    bool crc = true;
    bool markers = false;  // the peer asked for them
    std::size_t mulpdu_bytes = 1442;
  };

  Transmitter() { configure({}); }
  Transmitter(const Transmitter&) = delete;
  Transmitter& operator=(const Transmitter&) = delete;
  void configure(const Options& options) {
    options_ = options;
    set_mulpdu_bytes(options.mulpdu_bytes);
  }
  void set_mulpdu_bytes(std::size_t bytes);
  [[nodiscard]] std::size_t mulpdu_bytes() const { return options_.mulpdu_bytes; }
  // To be called before the first FPDU of a message that finds nothing else under way.
  void begin_alone() { alone_ = empty(); }

  // Whether one more FPDU of any size may be added now. Small ones may follow it without asking
  // again: an immediate, a probe, a Terminate.
  [[nodiscard]] bool has_room() const {
    // 40 pieces are more than one FPDU needs: a request has at most 32 slices, and a head and an
    // end come with them.
    return pending_ < burst_bytes && arena_used_ <= arena_limit_ &&
           pieces_.size() + 40 <= max_pieces;
  }

  // Adds one FPDU: a DDP header, then the payload. With CRCs payload of any size is copied, because
  // the application or a peer may change the memory before TCP has taken it, and the CRC must match
  // what is sent. Payload that is not copied must stay valid until TCP has taken it or forget() was
  // called for it. False: the payload cannot be read, and nothing is added.
  [[nodiscard]] bool add(Bytes ddp_header, std::span<const iovec> payload);
  // The same for a short payload of the library's own.
  void add_own(Bytes ddp_header, Bytes payload);

  [[nodiscard]] bool empty() const { return first_ == pieces_.size(); }
  // The bytes to send next. Valid until the next call of a member that is not const.
  [[nodiscard]] std::span<const iovec> pending() const;
  void advance(std::size_t bytes);

  // Positions in the stream of FPDUs, from 0: behind the last FPDU added, and behind the last byte
  // that TCP has taken.
  [[nodiscard]] std::uint64_t end_position() const { return end_; }
  [[nodiscard]] std::uint64_t taken_position() const { return taken_; }

  // Copies the pieces that refer to the memory [base, base + bytes), which is being unregistered.
  void forget(const std::byte* base, std::size_t bytes);
  // A piece could not be copied by forget(): pending() must not be sent.
  [[nodiscard]] bool lost() const { return lost_; }
  // Copies all pieces that are not the transmitter's own; drops everything where one is lost, since
  // the FPDU cannot be completed then.
  void detach();

  // Drops everything that TCP has not taken.
  void clear();

 private:
  [[nodiscard]] bool slow_in_place(std::size_t head_bytes, std::span<const iovec> payload) const;
  [[nodiscard]] std::byte* reserve(std::size_t bytes);
  void leave_small();
  void give_back(const std::byte* from);
  [[nodiscard]] bool is_small(const std::byte* at) const {
    return at >= small_.data() && at < small_.data() + small_.size();
  }
  [[nodiscard]] bool is_own(const iovec& piece) const;
  void append(const std::byte* at, std::size_t bytes);
  void rewind();
  [[nodiscard]] bool copy_piece(iovec& piece);
  [[nodiscard]] bool add_marked(Bytes ddp_header, std::span<const iovec> payload,
                                std::size_t payload_bytes);

  Options options_;
  std::array<std::byte, small_bytes> small_;
  std::size_t small_used_ = 0;
  PooledBuffer arena_;  // while it is used
  std::size_t arena_used_ = 0;
  std::size_t arena_limit_ = 0;  // up to which the largest FPDU still fits
  std::vector<iovec> pieces_;
  std::size_t first_ = 0;    // TCP has taken the pieces before this one
  std::size_t pending_ = 0;  // bytes that TCP has not taken
  bool alone_ = false;       // what is pending belongs to a message that found nothing under way
  std::vector<std::unique_ptr<std::byte[]>> copies_;
  bool lost_ = false;
  std::uint64_t end_ = 0;    // see end_position()
  std::uint64_t taken_ = 0;  // see taken_position()
};

}  // namespace weft::iwarp
