// The window through which format readers read a stream, and the parts from which streams are
// built.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/capture/byte_stream.hpp"
#include "weft/capture/packet_source.hpp"

namespace weft::capture {

// Opens a file, a pipe, or standard input for "-", without decompression. Throws and stops like
// open_bytes().
[[nodiscard]] std::unique_ptr<ByteStream> open_stored_bytes(
    const std::string& path, const std::atomic<bool>* stop = nullptr);
// Decompressors, each for any number of consecutive members or frames.
[[nodiscard]] std::unique_ptr<ByteStream> unpack_gzip(std::unique_ptr<ByteStream> packed);
[[nodiscard]] std::unique_ptr<ByteStream> unpack_zstd(std::unique_ptr<ByteStream> packed);
[[nodiscard]] std::unique_ptr<ByteStream> unpack_xz(std::unique_ptr<ByteStream> packed);
[[nodiscard]] std::unique_ptr<ByteStream> unpack_bzip2(std::unique_ptr<ByteStream> packed);
[[nodiscard]] std::unique_ptr<ByteStream> unpack_lz4(std::unique_ptr<ByteStream> packed);

// A window of a stream that moves forward. Bytes are copied once, into a buffer that fits into the
// cache. This costs less than the page faults of a mapped file, keeps the resident size small, and
// is safe if the file is truncated meanwhile.
class ByteWindow {
 public:
  explicit ByteWindow(std::unique_ptr<ByteStream> stream);

  // Returns at least `bytes` from the cursor on, or all that are available now. Valid until the
  // next call.
  [[nodiscard]] Bytes peek(std::size_t bytes) {
    if (end_ - begin_ < bytes) fill(bytes);
    return {buffer_.data() + begin_, end_ - begin_};
  }
  // Moves the cursor. `bytes` may be more than is buffered, even more than the buffer can hold.
  void skip(std::uint64_t bytes);

  [[nodiscard]] std::uint64_t position() const { return position_; }
  // Returns how much peek() would return without reading.
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

// The format readers of read_capture(); the window must be at the beginning of the file.
[[nodiscard]] std::unique_ptr<PacketSource> read_pcap(ByteWindow window);
[[nodiscard]] std::unique_ptr<PacketSource> read_pcapng(ByteWindow window);

}  // namespace weft::capture
