// The common part of the decompressors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "weft/capture/byte_stream.hpp"

namespace weft::capture {

// Holds compressed bytes that were not used yet.
class Unpacker : public ByteStream {
 public:
  explicit Unpacker(std::unique_ptr<ByteStream> packed)
      : packed_(std::move(packed)), input_(input_bytes) {}

  [[nodiscard]] std::string problem() const override {
    return problem_.empty() ? packed_->problem() : problem_;
  }
  [[nodiscard]] std::uint64_t stored_bytes_read() const override {
    return packed_->stored_bytes_read();
  }
  [[nodiscard]] std::uint64_t stored_bytes() const override { return packed_->stored_bytes(); }
  // Returns whether the bytes that were read end within compressed data. A growing file may have
  // the rest later.
  [[nodiscard]] bool is_unfinished() const { return inside_ && !failed(); }

 protected:
  // A frame, member or stream of the format has begun, or has ended.
  void set_inside(bool inside) { inside_ = inside; }

  // Reads compressed bytes if none are left. Returns false if there are none now.
  bool refill() {
    if (next_ < filled_) return true;
    next_ = 0;
    filled_ = packed_->read(input_);
    return filled_ > 0;
  }
  [[nodiscard]] MutableBytes input() {
    return MutableBytes(input_).subspan(next_, filled_ - next_);
  }
  void take(std::size_t bytes) { next_ += bytes; }
  void fail(std::string problem) { problem_ = std::move(problem); }
  [[nodiscard]] bool failed() const { return !problem_.empty(); }

 private:
  static constexpr std::size_t input_bytes = 128 * 1024;

  std::unique_ptr<ByteStream> packed_;
  std::vector<std::byte> input_;
  std::size_t next_ = 0;
  std::size_t filled_ = 0;
  std::string problem_;
  bool inside_ = false;
};

// Returns what PacketSource::leftover() reports if all whole packets were read, but the compressed
// data of the file have no end: more packets may be missing.
[[nodiscard]] std::string unfinished_text(const ByteStream& stream);

}  // namespace weft::capture
