#include "iwarp/transmitter.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/crc32c_state.h"
#include "base/guarded_crc.h"
#include "base/guarded_memory.h"
#include "wire/ddp.h"
#include "wire/markers.h"
#include "wire/mpa.h"

namespace weft::iwarp {
namespace {

std::size_t total_bytes(std::span<const iovec> pieces) {
  std::size_t total = 0;
  for (const auto& piece : pieces) total += piece.iov_len;
  return total;
}

// The kernel copies what is sent into pages of its own, often from their begin on. Where the
// destination of its copy lies 1 to 63 bytes behind the source, modulo the page, some processors
// take 20 times as long. So the arena is used from near to the end of its first page on.
constexpr std::size_t page_bytes = 4096;
constexpr std::size_t slow_copy_bytes = 64;
constexpr std::size_t arena_begin = page_bytes - slow_copy_bytes;
constexpr std::size_t arena_end = arena_begin + Transmitter::arena_bytes;

constinit BufferPool arenas(arena_end);

// Payload from this size on gets its CRC while it is copied. Below, the CRC of a whole FPDU takes
// less than that of its parts.
constexpr std::size_t fused_bytes = 1024;

// A header has one of two lengths, and a copy of a known length needs no call.
void store_header(std::byte* at, Bytes header) {
  if (header.size() == wire::DdpUntagged::header_bytes) {
    std::memcpy(at, header.data(), wire::DdpUntagged::header_bytes);
  } else {
    assert(header.size() == wire::DdpTagged::header_bytes);
    std::memcpy(at, header.data(), wire::DdpTagged::header_bytes);
  }
}

// Writes length and header of an FPDU. Returns where its payload begins.
std::byte* begin_fpdu(std::byte* at, Bytes header, std::size_t payload_bytes) {
  wire::store_fpdu_length(at, header.size() + payload_bytes);
  store_header(at + wire::fpdu_length_bytes, header);
  return at + wire::fpdu_length_bytes + header.size();
}

// Writes pad and CRC behind [at, end), where the FPDU lies whole if it has a CRC. Returns its end.
std::byte* end_fpdu(const std::byte* at, std::byte* end, std::size_t pad, bool with_crc) {
  // RFC 5044 §4.1: pad bytes are zero when sent.
  std::memset(end, 0, pad);
  end += pad;
  // RFC 5044 §4.4: where CRCs are off the field may have any value.
  wire::store_fpdu_crc(end, with_crc ? crc32c({at, static_cast<std::size_t>(end - at)}) : 0);
  return end + wire::fpdu_crc_bytes;
}

// The same where the CRC of what lies before `end` is known.
std::byte* end_fpdu(std::byte* end, std::size_t pad, std::uint32_t crc_state) {
  std::memset(end, 0, pad);
  crc_state = update_crc32c(crc_state, {end, pad});
  end += pad;
  wire::store_fpdu_crc(end, ~crc_state);
  return end + wire::fpdu_crc_bytes;
}

// Copies payload behind [at, end) and ends the FPDU. Large payload is read once, for the copy and
// for the CRC. Returns the end of the FPDU; null: the payload cannot be read.
std::byte* copy_with_crc(const std::byte* at, std::byte* end, std::span<const iovec> payload,
                         std::size_t pad) {
  std::uint32_t crc = update_crc32c(crc32c_begin, {at, static_cast<std::size_t>(end - at)});
  for (const auto& piece : payload) {
    if (!guarded_load(end, piece.iov_base, piece.iov_len, crc)) [[unlikely]]
      return nullptr;
    end += piece.iov_len;
  }
  return end_fpdu(end, pad, crc);
}

}  // namespace

void Transmitter::set_mulpdu_bytes(std::size_t bytes) {
  options_.mulpdu_bytes = bytes;
  // The largest FPDU must fit, copied and with markers; after it the few small ones that are added
  // without a check: an immediate, a probe, control words, a Terminate.
  constexpr std::size_t reserve_bytes = 1024;
  // Markers add 4 bytes to each 512, and 1/64 is twice that; 64 bytes are more than length field,
  // pad, CRC and one marker.
  const std::size_t largest = bytes + bytes / 64 + 64;
  arena_limit_ = arena_end - largest - reserve_bytes;
}

std::byte* Transmitter::reserve(std::size_t bytes) {
  if (!arena_ && bytes <= small_.size() - small_used_) {
    std::byte* at = small_.data() + small_used_;
    small_used_ += bytes;
    return at;
  }
  if (!arena_) leave_small();
  assert(bytes <= arena_end - arena_used_ && "an FPDU was added without has_room()");
  std::byte* at = arena_.get() + arena_used_;
  arena_used_ += bytes;
  return at;
}

// What is built goes into the arena, so that it remains one piece with what follows: the kernel
// copies two pieces from different places more slowly.
void Transmitter::leave_small() {
  arena_ = buffer_of(arenas);
  std::byte* const begin = arena_.get() + arena_begin;
  std::memcpy(begin, small_.data(), small_used_);
  for (std::size_t i = first_; i < pieces_.size(); ++i) {
    auto* at = static_cast<std::byte*>(pieces_[i].iov_base);
    if (!is_small(at)) continue;
    pieces_[i].iov_base = begin + (at - small_.data());
  }
  arena_used_ = arena_begin + std::exchange(small_used_, 0);
}

// Undoes the last reserve(), which has returned `from`.
void Transmitter::give_back(const std::byte* from) {
  if (arena_) {
    arena_used_ = static_cast<std::size_t>(from - arena_.get());
  } else {
    small_used_ = static_cast<std::size_t>(from - small_.data());
  }
}

// Appends a piece, or lengthens the last one where the new bytes follow it directly in memory.
void Transmitter::append(const std::byte* at, std::size_t bytes) {
  if (bytes == 0) return;
  pending_ += bytes;
  end_ += bytes;
  if (first_ < pieces_.size()) {
    iovec& last = pieces_.back();
    // FPDUs that are copied follow each other in the arena and become one piece, however many they
    // are.
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == at) {
      last.iov_len += bytes;
      return;
    }
  }
  pieces_.push_back({const_cast<std::byte*>(at), bytes});
}

// Whether the kernel would copy the payload slowly from where it lies: see arena_begin. Where
// nothing else is under way, its pages are free, and what is pending begins with one.
bool Transmitter::slow_in_place(std::size_t head_bytes, std::span<const iovec> payload) const {
  if (!alone_) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(payload.front().iov_base);
  const std::size_t behind = (pending_ + head_bytes - address) % page_bytes;
  return behind > 0 && behind < slow_copy_bytes;
}

// RFC 5044 §4.1: length, ULPDU, pad to a multiple of four, CRC.
bool Transmitter::add(Bytes ddp_header, std::span<const iovec> payload) {
  const std::size_t payload_bytes = total_bytes(payload);
  if (options_.markers) return add_marked(ddp_header, payload, payload_bytes);

  const std::size_t ulpdu = ddp_header.size() + payload_bytes;
  const std::size_t pad = wire::fpdu_pad_bytes(ulpdu);
  const std::size_t head = wire::fpdu_length_bytes + ddp_header.size();
  // A CRC over memory that may change until TCP has taken it would be wrong sooner or later; small
  // payload is cheaper to copy than to name.
  const bool copy =
      options_.crc || payload_bytes <= copy_limit_bytes || slow_in_place(head, payload);
  std::byte* at = reserve(head + (copy ? payload_bytes : 0) + pad + wire::fpdu_crc_bytes);
  std::byte* end = begin_fpdu(at, ddp_header, payload_bytes);
  if (options_.crc && payload_bytes >= fused_bytes) {
    end = copy_with_crc(at, end, payload, pad);
    if (!end) [[unlikely]] {
      give_back(at);
      return false;
    }
    append(at, static_cast<std::size_t>(end - at));
    return true;
  }
  for (const auto& piece : payload) {
    if (!copy) {
      append(at, static_cast<std::size_t>(end - at));
      at = end;
      append(static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
      continue;
    }
    if (!guarded_load(end, piece.iov_base, piece.iov_len)) [[unlikely]] {
      // Nothing was appended yet, so giving back the memory undoes everything.
      give_back(at);
      return false;
    }
    end += piece.iov_len;
  }
  const std::byte* whole = end_fpdu(at, end, pad, options_.crc);
  append(at, static_cast<std::size_t>(whole - at));
  return true;
}

// Needs neither a list of pieces nor a guard.
void Transmitter::add_own(Bytes ddp_header, Bytes payload) {
  if (options_.markers) [[unlikely]] {
    const iovec piece{const_cast<std::byte*>(payload.data()), payload.size()};
    (void)add_marked(ddp_header, {&piece, 1}, payload.size());
    return;
  }
  const std::size_t pad = wire::fpdu_pad_bytes(ddp_header.size() + payload.size());
  const std::size_t head = wire::fpdu_length_bytes + ddp_header.size();
  std::byte* at = reserve(head + payload.size() + pad + wire::fpdu_crc_bytes);
  std::byte* end = begin_fpdu(at, ddp_header, payload.size());
  if (!payload.empty()) std::memcpy(end, payload.data(), payload.size());
  const std::byte* whole = end_fpdu(at, end + payload.size(), pad, options_.crc);
  append(at, static_cast<std::size_t>(whole - at));
}

// For a peer that asked for markers (RFC 5044 §4.3). The FPDU is laid out without markers first and
// copied with them; such peers are rare, so this path is simple rather than fast.
bool Transmitter::add_marked(Bytes ddp_header, std::span<const iovec> payload,
                             std::size_t payload_bytes) {
  const std::size_t ulpdu = ddp_header.size() + payload_bytes;
  std::vector<std::byte> plain(wire::fpdu_bytes(ulpdu));
  wire::store_fpdu_length(plain.data(), ulpdu);
  std::byte* at =
      std::copy(ddp_header.begin(), ddp_header.end(), plain.data() + wire::fpdu_length_bytes);
  for (const auto& piece : payload) {
    if (!guarded_load(at, piece.iov_base, piece.iov_len)) return false;
    at += piece.iov_len;
  }
  const std::size_t marked = wire::marked_bytes(end_, plain.size());
  std::byte* out = reserve(marked);
  // Cannot fail: the FPDU is whole and the room reserved. It also computes the CRC, which the peer
  // ignores where CRCs are off.
  (void)wire::insert_markers(end_, plain, MutableBytes{out, marked});
  append(out, marked);
  return true;
}

std::span<const iovec> Transmitter::pending() const {
  return std::span<const iovec>(pieces_).subspan(first_);
}

void Transmitter::advance(std::size_t bytes) {
  bytes = std::min(bytes, pending_);
  taken_ += bytes;
  pending_ -= bytes;
  while (bytes > 0) {
    iovec& piece = pieces_[first_];
    // TCP may take any part of what was offered; the next plan begins in the middle of this piece.
    if (bytes < piece.iov_len) {
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + bytes;
      piece.iov_len -= bytes;
      return;
    }
    bytes -= piece.iov_len;
    ++first_;
  }
  // The arena is used again only as a whole: pieces that are left point into it.
  if (empty()) rewind();
}

void Transmitter::rewind() {
  alone_ = false;
  pieces_.clear();
  copies_.clear();
  first_ = 0;
  small_used_ = 0;
  arena_used_ = 0;
  arena_.reset();
}

void Transmitter::forget(const std::byte* base, std::size_t bytes) {
  for (std::size_t i = first_; i < pieces_.size(); ++i) {
    auto* at = static_cast<std::byte*>(pieces_[i].iov_base);
    // Copies lie elsewhere and never overlap the region.
    if (at + pieces_[i].iov_len > base && at < base + bytes && !copy_piece(pieces_[i])) {
      lost_ = true;
    }
  }
}

// A piece never reaches beyond the memory that it begins in.
bool Transmitter::is_own(const iovec& piece) const {
  const auto* at = static_cast<const std::byte*>(piece.iov_base);
  return is_small(at) || (arena_ && at >= arena_.get() && at < arena_.get() + arena_end);
}

// Copies that were made before are copied once more, which is harmless.
void Transmitter::detach() {
  for (std::size_t i = first_; i < pieces_.size(); ++i) {
    if (!is_own(pieces_[i]) && (lost_ || !copy_piece(pieces_[i]))) return clear();
  }
}

bool Transmitter::copy_piece(iovec& piece) {
  auto copy = std::make_unique_for_overwrite<std::byte[]>(piece.iov_len);
  if (!guarded_load(copy.get(), piece.iov_base, piece.iov_len)) return false;
  piece.iov_base = copy.get();
  copies_.push_back(std::move(copy));
  return true;
}

void Transmitter::clear() {
  rewind();
  pending_ = 0;
  lost_ = false;
  // What is dropped counts as taken, so that positions of later FPDUs remain right.
  taken_ = end_;
}

}  // namespace weft::iwarp
