// Bytes of a capture in the order in which they were written: from a file, a pipe, memory, or out
// of gzip or zstd.
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
  // How many bytes were put into `out`, which is not empty. 0: there is nothing now. A file may
  // grow, so asking again is allowed.
  virtual std::size_t read(MutableBytes out) = 0;
  // Why nothing more can be read; empty: it ends as it should.
  [[nodiscard]] virtual std::string problem() const { return {}; }
  // Of what was stored, compressed or not: how much was read, and how much there is; 0: unknown.
  [[nodiscard]] virtual std::uint64_t stored_bytes_read() const = 0;
  [[nodiscard]] virtual std::uint64_t stored_bytes() const = 0;
};

// A file, a pipe, or standard input for "-", unpacked where it begins as gzip or zstd does. Throws
// std::system_error naming `path`. When a signal interrupts a read, `*stop` says whether to give
// up; nullptr: never.
[[nodiscard]] WEFT_API std::unique_ptr<ByteStream> open_bytes(
    const std::string& path, const std::atomic<bool>* stop = nullptr);
// For captures that are in memory; `bytes` must outlive it.
[[nodiscard]] WEFT_API std::unique_ptr<ByteStream> bytes_in_memory(Bytes bytes);

}  // namespace weft::capture
