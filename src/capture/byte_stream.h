// Bytes of a capture in the order in which they were written: from a file, a pipe, or out of gzip
// or zstd. And the window through which readers of formats look at them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace weft::capture {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // How many bytes were put into `out`, which is not empty. 0: there is nothing now. A file may
  // grow, so asking again is allowed.
  virtual std::size_t read(MutableBytes out) = 0;
  // Why nothing more can be read; empty: it ends as it should.
  [[nodiscard]] virtual std::string problem() const { return {}; }
  // Of what was stored, compressed or not: how much was read, and how much there is; 0: unknown.
  [[nodiscard]] virtual std::uint64_t stored_bytes_read() const = 0;
  [[nodiscard]] virtual std::uint64_t stored_bytes() const = 0;
};

// A file, a pipe, or standard input for "-". Throws std::system_error naming `path`. When a signal
// interrupts a read, `*stop` says whether to give up; nullptr: never.
[[nodiscard]] std::unique_ptr<ByteStream> open_stored_bytes(
    const std::string& path, const std::atomic<bool>* stop = nullptr);
// The same, unpacked where it begins as gzip or zstd does.
[[nodiscard]] std::unique_ptr<ByteStream> open_bytes(const std::string& path,
                                                     const std::atomic<bool>* stop = nullptr);
// For captures that are in memory; `bytes` must outlive it.
[[nodiscard]] std::unique_ptr<ByteStream> bytes_in_memory(Bytes bytes);

// Unpackers, each for any number of members or frames one behind the other.
[[nodiscard]] std::unique_ptr<ByteStream> unpack_gzip(std::unique_ptr<ByteStream> packed);
[[nodiscard]] std::unique_ptr<ByteStream> unpack_zstd(std::unique_ptr<ByteStream> packed);

// A piece of a stream that moves forward. Bytes are copied once, into a buffer that fits into the
// cache: reading a file so costs less than the page faults of mapping it, leaves the resident size
// small, and survives a file that somebody cuts short.
class ByteWindow {
 public:
  explicit ByteWindow(std::unique_ptr<ByteStream> stream);

  // From the cursor on at least `bytes`, or all there are now. Valid until the next call.
  [[nodiscard]] Bytes peek(std::size_t bytes) {
    if (end_ - begin_ < bytes) fill(bytes);
    return {buffer_.data() + begin_, end_ - begin_};
  }
  // Moves the cursor; `bytes` may be more than what is there, even more than a window can hold.
  void skip(std::uint64_t bytes);

  [[nodiscard]] std::uint64_t position() const { return position_; }
  // How much peek() would give without reading.
  [[nodiscard]] std::size_t buffered() const { return end_ - begin_; }
  [[nodiscard]] const ByteStream& stream() const { return *stream_; }

 private:
  void fill(std::size_t bytes);

  std::unique_ptr<ByteStream> stream_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t to_skip_ = 0;
};

}  // namespace weft::capture
