// The bytes of a capture in file order: from a file, a pipe, memory, or a decompressor of gzip,
// zstd, xz, bzip2 or lz4.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "weft/bytes.hpp"
#include "weft/export.hpp"

namespace weft::capture {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Reads into `out`, which must not be empty, and returns the number of bytes. 0 means that
  // nothing is available now; a file may grow, so a later call may return more.
  virtual std::size_t read(MutableBytes out) = 0;
  // Returns why nothing more can be read. The string is empty if the stream ended correctly.
  [[nodiscard]] virtual std::string problem() const { return {}; }
  // Returns how many of the stored bytes were read so far: bytes before decompression.
  [[nodiscard]] virtual std::uint64_t stored_bytes_read() const = 0;
  // Returns how many stored bytes there are. For a file that is its size when it was opened. 0
  // means that the number is unknown, as for a pipe.
  [[nodiscard]] virtual std::uint64_t stored_bytes() const = 0;
};

// Opens a file, a pipe, or standard input for "-", and decompresses it if it begins like gzip,
// zstd, xz, bzip2 or lz4. Throws std::system_error with `path` in its text. When a signal
// interrupts a read, the read stops if `*stop` is true; with nullptr it always continues.
[[nodiscard]] WEFT_API std::unique_ptr<ByteStream> open_bytes(
    const std::string& path, const std::atomic<bool>* stop = nullptr);
// Reads a capture that is in memory; `bytes` must outlive the stream.
[[nodiscard]] WEFT_API std::unique_ptr<ByteStream> bytes_in_memory(Bytes bytes);

}  // namespace weft::capture
