// Decompresses gzip with zlib, and zstd with libzstd.
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <new>
#include <string>

#include "capture/sources/unpacker.h"
#include "capture/tcp/byte_window.h"

namespace weft::capture {
namespace {

class Gzip final : public Unpacker {
 public:
  explicit Gzip(std::unique_ptr<ByteStream> packed) : Unpacker(std::move(packed)) {
    // zlib.h: 16 more than the window bits selects the gzip format instead of that of zlib.
    constexpr int gzip_wrapper = 16;
    if (inflateInit2(&state_, MAX_WBITS + gzip_wrapper) != Z_OK) throw std::bad_alloc();
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  ~Gzip() override { inflateEnd(&state_); }

  // Returns as soon as there is any output. Input that produces none (headers) needs another turn.
  std::size_t read(MutableBytes out) override {
    while (!failed() && refill()) {
      if (!inside_member_ && !begin_member()) continue;
      state_.next_in = reinterpret_cast<Bytef*>(input().data());
      state_.avail_in = static_cast<uInt>(input().size());
      state_.next_out = reinterpret_cast<Bytef*>(out.data());
      // zlib counts in 32 bits, so that one call fills only a part of a larger output.
      state_.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size(), 1U << 30));
      const uInt room = state_.avail_out;
      const int status = inflate(&state_, Z_NO_FLUSH);
      take(input().size() - state_.avail_in);
      if (status == Z_STREAM_END) {
        inflateReset(&state_);  // another gzip member may follow
        set_inside(inside_member_ = false);
        // Z_BUF_ERROR is not fatal: it only shows that more input is needed.
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        fail(std::string("the gzip data is damaged: ") +
             (state_.msg ? state_.msg : "no reason given"));
      }
      if (room > state_.avail_out) return room - state_.avail_out;
    }
    return 0;
  }

 private:
  // Skips the zeros with which tapes and block devices fill up the end, as gzip(1) does. Returns
  // whether a member begins.
  bool begin_member() {
    const MutableBytes bytes = input();
    const auto begin =
        began_ ? std::ranges::find_if(bytes, [](std::byte one) { return one != std::byte{}; })
               : bytes.begin();
    take(static_cast<std::size_t>(begin - bytes.begin()));
    began_ = true;
    if (begin == bytes.end()) return false;
    set_inside(inside_member_ = true);
    return true;
  }

  z_stream state_{};
  bool began_ = false;  // the first member, which has no zeros before it
  bool inside_member_ = false;
};

class Zstd final : public Unpacker {
 public:
  explicit Zstd(std::unique_ptr<ByteStream> packed)
      : Unpacker(std::move(packed)), state_(ZSTD_createDCtx()) {
    if (!state_) throw std::bad_alloc();
  }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;
  ~Zstd() override { ZSTD_freeDCtx(state_); }

  std::size_t read(MutableBytes out) override {
    // The decompressor may hold output after it has used all input.
    while (!failed() && (more_inside_ || refill())) {
      ZSTD_inBuffer in{input().data(), input().size(), 0};
      ZSTD_outBuffer unpacked{out.data(), out.size(), 0};
      // After the end of a frame the next call begins another one, so no reset is necessary.
      const std::size_t status = ZSTD_decompressStream(state_, &unpacked, &in);
      take(in.pos);
      if (ZSTD_isError(status)) {
        fail(std::string("the zstd data is damaged: ") + ZSTD_getErrorName(status));
      }
      // A call without input begins a frame that may never come.
      if (in.pos > 0 || unpacked.pos > 0) set_inside(status != 0);
      more_inside_ = unpacked.pos == unpacked.size;
      if (unpacked.pos > 0) return unpacked.pos;
    }
    return 0;
  }

 private:
  ZSTD_DCtx* state_;
  bool more_inside_ = false;
};

}  // namespace

std::string unfinished_text(const ByteStream& stream) {
  const auto* const packed = dynamic_cast<const Unpacker*>(&stream);
  return packed != nullptr && packed->is_unfinished() ? "its compressed data have no end" : "";
}

std::unique_ptr<ByteStream> unpack_gzip(std::unique_ptr<ByteStream> packed) {
  return std::make_unique<Gzip>(std::move(packed));
}

std::unique_ptr<ByteStream> unpack_zstd(std::unique_ptr<ByteStream> packed) {
  return std::make_unique<Zstd>(std::move(packed));
}

}  // namespace weft::capture
