// Decompresses xz with liblzma, bzip2 with libbz2, and lz4 with liblz4.
#include <bzlib.h>
#include <lz4frame.h>
#include <lzma.h>

#include <algorithm>
#include <new>

#include "capture/sources/unpacker.h"
#include "capture/tcp/byte_window.h"

namespace weft::capture {
namespace {

// A dictionary of an xz file is 1.5 GiB at most; files of `xz -9` need 65 MiB.
// The limit is for hostile files, whose headers can demand a large dictionary.
constexpr std::uint64_t max_xz_memory_bytes = 512 * 1024 * 1024;
constexpr std::size_t max_step_bytes = 1U << 30;  // bzip2 counts in 32 bits

class Xz final : public Unpacker {
 public:
  explicit Xz(std::unique_ptr<ByteStream> packed) : Unpacker(std::move(packed)) { begin(); }
  Xz(const Xz&) = delete;
  Xz& operator=(const Xz&) = delete;
  ~Xz() override { lzma_end(&state_); }

  std::size_t read(MutableBytes out) override {
    while (!failed() && (more_inside_ || refill())) {
      // The next stream begins only with input for it, because the file may end here.
      if (ended_ && !begin_next()) continue;
      state_.next_in = reinterpret_cast<const std::uint8_t*>(input().data());
      state_.avail_in = input().size();
      state_.next_out = reinterpret_cast<std::uint8_t*>(out.data());
      state_.avail_out = out.size();
      const lzma_ret status = lzma_code(&state_, LZMA_RUN);
      take(input().size() - state_.avail_in);
      ended_ = status == LZMA_STREAM_END;
      set_inside(!ended_);
      // After a full output the decoder may hold more, which needs no further input.
      more_inside_ = !ended_ && state_.avail_out == 0;
      if (status == LZMA_MEMLIMIT_ERROR) fail("the xz data needs too much memory");
      // LZMA_BUF_ERROR is not fatal: it only shows that no progress was possible.
      if (status != LZMA_OK && !ended_ && status != LZMA_BUF_ERROR) fail("the xz data is damaged");
      if (out.size() > state_.avail_out) return out.size() - state_.avail_out;
    }
    return 0;
  }

 private:
  // With the flag LZMA_CONCATENATED the decoder would continue with the next stream by itself, but
  // would not show where one has ended.
  void begin() {
    if (lzma_stream_decoder(&state_, max_xz_memory_bytes, 0) != LZMA_OK) throw std::bad_alloc();
  }
  // Skips the zeros that may follow a stream (file format 1.0.4 §2.2). Returns whether another
  // stream begins.
  bool begin_next() {
    const MutableBytes bytes = input();
    const auto next = std::ranges::find_if(bytes, [](std::byte one) { return one != std::byte{}; });
    take(static_cast<std::size_t>(next - bytes.begin()));
    if (next == bytes.end()) return false;
    ended_ = false;
    begin();
    return true;
  }

  lzma_stream state_ = LZMA_STREAM_INIT;
  bool more_inside_ = false;
  bool ended_ = false;
};

class Bzip2 final : public Unpacker {
 public:
  explicit Bzip2(std::unique_ptr<ByteStream> packed) : Unpacker(std::move(packed)) { begin(); }
  Bzip2(const Bzip2&) = delete;
  Bzip2& operator=(const Bzip2&) = delete;
  ~Bzip2() override { BZ2_bzDecompressEnd(&state_); }

  std::size_t read(MutableBytes out) override {
    while (!failed() && (more_inside_ || refill())) {
      // The next stream begins only with input for it, because the file may end here.
      if (ended_ && !input().empty()) begin_next();
      state_.next_in = reinterpret_cast<char*>(input().data());
      state_.avail_in = static_cast<unsigned>(input().size());
      state_.next_out = reinterpret_cast<char*>(out.data());
      const auto room = static_cast<unsigned>(std::min(out.size(), max_step_bytes));
      state_.avail_out = room;
      const int status = BZ2_bzDecompress(&state_);
      take(input().size() - state_.avail_in);
      ended_ = status == BZ_STREAM_END;
      set_inside(!ended_);
      more_inside_ = !ended_ && state_.avail_out == 0;
      if (status != BZ_OK && !ended_) fail("the bzip2 data is damaged");
      if (room > state_.avail_out) return room - state_.avail_out;
    }
    return 0;
  }

 private:
  void begin() {
    // The last argument selects the faster algorithm, which needs about 4 MB.
    if (BZ2_bzDecompressInit(&state_, 0, 0) != BZ_OK) throw std::bad_alloc();
  }
  // Another stream may follow: parallel compressors write many.
  void begin_next() {
    BZ2_bzDecompressEnd(&state_);
    state_ = {};
    ended_ = false;
    begin();
  }

  bz_stream state_{};
  bool more_inside_ = false;
  bool ended_ = false;
};

class Lz4 final : public Unpacker {
 public:
  explicit Lz4(std::unique_ptr<ByteStream> packed) : Unpacker(std::move(packed)) {
    if (LZ4F_isError(LZ4F_createDecompressionContext(&state_, LZ4F_VERSION)) != 0) {
      throw std::bad_alloc();
    }
  }
  Lz4(const Lz4&) = delete;
  Lz4& operator=(const Lz4&) = delete;
  ~Lz4() override { LZ4F_freeDecompressionContext(state_); }

  std::size_t read(MutableBytes out) override {
    while (!failed() && (more_inside_ || refill())) {
      std::size_t taken = input().size();
      // Both sizes are limits before the call, and what was used after it.
      std::size_t made = out.size();
      const std::size_t status =
          LZ4F_decompress(state_, out.data(), &made, input().data(), &taken, nullptr);
      take(taken);
      // A call without input begins a frame that may never come.
      if (taken > 0 || made > 0) set_inside(status != 0);
      more_inside_ = made == out.size();
      if (LZ4F_isError(status) != 0) {
        fail(std::string("the lz4 data is damaged: ") + LZ4F_getErrorName(status));
      }
      if (made > 0) return made;
    }
    return 0;
  }

 private:
  LZ4F_dctx* state_ = nullptr;
  bool more_inside_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> unpack_xz(std::unique_ptr<ByteStream> packed) {
  return std::make_unique<Xz>(std::move(packed));
}

std::unique_ptr<ByteStream> unpack_bzip2(std::unique_ptr<ByteStream> packed) {
  return std::make_unique<Bzip2>(std::move(packed));
}

std::unique_ptr<ByteStream> unpack_lz4(std::unique_ptr<ByteStream> packed) {
  return std::make_unique<Lz4>(std::move(packed));
}

}  // namespace weft::capture
