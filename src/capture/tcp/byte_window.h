// The window through which readers of formats look at a stream, and what streams are made of.
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

// A file, a pipe, or standard input for "-", as it is stored. Throws and stops as open_bytes()
// does.
[[nodiscard]] std::unique_ptr<ByteStream> open_stored_bytes(
    const std::string& path, const std::atomic<bool>* stop = nullptr);
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

// The parts of read_capture(): the window stands at the beginning of the file.
[[nodiscard]] std::unique_ptr<PacketSource> read_pcap(ByteWindow window);
[[nodiscard]] std::unique_ptr<PacketSource> read_pcapng(ByteWindow window);

}  // namespace weft::capture
