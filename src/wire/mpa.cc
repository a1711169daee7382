#include "wire/mpa.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "wire/field.h"

namespace weft::wire {

constexpr std::size_t key_bytes = 16;

namespace field::mpa_frame {
constexpr FieldBytes<key_bytes> key{0};
constexpr Field8 flags{key.end()};
constexpr Field8 revision{flags.end()};
constexpr Field16 private_data_bytes{revision.end()};
static_assert(private_data_bytes.end() == MpaFrame::header_bytes);
}  // namespace field::mpa_frame

// Two words, each with two flags above its 14 bits of depth.
namespace field::mpa_enhanced {
constexpr Field16 ird{0};
constexpr Field16 ord{ird.end()};
static_assert(ord.end() == MpaEnhanced::header_bytes);
}  // namespace field::mpa_enhanced

namespace field::marker {
constexpr Field16 reserved{0};
constexpr Field16 fpdu_pointer{reserved.end()};
static_assert(fpdu_pointer.end() == marker_bytes);
}  // namespace field::marker

namespace {

// RFC 5044 §4.3: FPDUs and markers begin at multiples of four.
constexpr std::uint16_t pointer_mask = 0xFFFC;

constexpr std::string_view request_key = "MPA ID Req Frame";
constexpr std::string_view reply_key = "MPA ID Rep Frame";
static_assert(request_key.size() == key_bytes && reply_key.size() == key_bytes);

// RFC 5044 §7.1 has M, C and R; RFC 6581 adds S, for enhanced connection setup.
constexpr std::byte markers_bit{0x80};
constexpr std::byte crc_bit{0x40};
constexpr std::byte reject_bit{0x20};
constexpr std::byte enhanced_bit{0x10};
constexpr std::byte mark_bits{0x03};
constexpr std::byte words_bit{0x04};
constexpr std::byte extended_bit{0x08};

// In the two words of MpaEnhanced: A and B in the first, C and D in the second.
constexpr std::uint16_t high_bit = 0x8000;
constexpr std::uint16_t low_bit = 0x4000;
constexpr std::uint16_t depth_mask = 0x3FFF;

// Compared whole: the 16 characters are all that distinguishes MPA from another protocol at this
// port.
bool has_key(Bytes bytes, std::string_view key) {
  return std::memcmp(bytes.data(), key.data(), key.size()) == 0;
}

bool is_set(std::byte flags, std::byte bit) {
  return (flags & bit) != std::byte{0};
}

std::byte flag(bool set, std::byte bit) {
  return set ? bit : std::byte{0};
}

// The mask keeps a depth that needs more than 14 bits out of the flags.
std::uint16_t depth_word(bool high, bool low, std::uint16_t depth) {
  return static_cast<std::uint16_t>((high ? high_bit : 0) | (low ? low_bit : 0) |
                                    (depth & depth_mask));
}

}  // namespace

Result<MpaFrame, WireError> MpaFrame::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const bool is_request = has_key(bytes, request_key);
  if (!is_request && !has_key(bytes, reply_key)) return WireError::bad_key;

  namespace at = field::mpa_frame;
  const std::byte flags = bytes[at::flags.at];
  MpaFrame frame;
  frame.kind = is_request ? MpaKind::request : MpaKind::reply;
  frame.revision = at::revision.load(bytes.data());
  frame.private_data_bytes = at::private_data_bytes.load(bytes.data());
  frame.markers = is_set(flags, markers_bit);
  frame.crc = is_set(flags, crc_bit);
  // RFC 5044 §7.1: R means something in a reply only. S is a reserved bit before revision 2.
  frame.reject = !is_request && is_set(flags, reject_bit);
  frame.enhanced = frame.revision == 2 && is_set(flags, enhanced_bit);
  frame.mark = static_cast<MpaMark>(flags & mark_bits);
  frame.words = frame.mark != MpaMark::none && is_set(flags, words_bit);
  frame.extended = frame.mark != MpaMark::none && is_set(flags, extended_bit);

  // The revision is checked first, because in an unknown one the other fields may mean something
  // else.
  if (frame.revision != 1 && frame.revision != 2) return WireError::bad_revision;
  if (frame.private_data_bytes > max_private_data_bytes) return WireError::bad_length;
  // RFC 6581 counts the words of the enhanced setup in the length of the private data.
  if (frame.enhanced && frame.private_data_bytes < MpaEnhanced::header_bytes)
    return WireError::bad_length;
  return frame;
}

void MpaFrame::emit(MutableBytes out) const {
  namespace at = field::mpa_frame;
  const auto key = kind == MpaKind::request ? request_key : reply_key;
  std::memcpy(out.data() + at::key.at, key.data(), key.size());
  out[at::flags.at] = flag(markers, markers_bit) | flag(crc, crc_bit) |
                      flag(reject && kind == MpaKind::reply, reject_bit) |
                      flag(enhanced && revision == 2, enhanced_bit) |
                      flag(words && mark != MpaMark::none, words_bit) |
                      flag(extended && mark != MpaMark::none, extended_bit) |
                      (static_cast<std::byte>(mark) & mark_bits);
  at::revision.store(out.data(), revision);
  at::private_data_bytes.store(out.data(), private_data_bytes);
}

Result<MpaEnhanced, WireError> MpaEnhanced::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  const std::uint16_t first = field::mpa_enhanced::ird.load(bytes.data());
  const std::uint16_t second = field::mpa_enhanced::ord.load(bytes.data());
  return MpaEnhanced{.peer_to_peer = (first & high_bit) != 0,
                     .rtr_send = (first & low_bit) != 0,
                     .rtr_write = (second & high_bit) != 0,
                     .rtr_read = (second & low_bit) != 0,
                     .ird = static_cast<std::uint16_t>(first & depth_mask),
                     .ord = static_cast<std::uint16_t>(second & depth_mask)};
}

void MpaEnhanced::emit(MutableBytes out) const {
  field::mpa_enhanced::ird.store(out.data(), depth_word(peer_to_peer, rtr_send, ird));
  field::mpa_enhanced::ord.store(out.data(), depth_word(rtr_write, rtr_read, ord));
}

// The private data may arrive later than the header; `truncated` asks for more.
Result<MpaFrameView, WireError> MpaFrameView::check(Bytes bytes) {
  const auto frame = MpaFrame::parse(bytes);
  if (!frame) return frame.error();
  const auto private_data = bytes.subspan(MpaFrame::header_bytes);
  if (private_data.size() < frame->private_data_bytes) return WireError::truncated;
  return MpaFrameView(*frame, private_data.first(frame->private_data_bytes));
}

std::optional<MpaEnhanced> MpaFrameView::enhanced() const {
  if (!frame_.enhanced) return std::nullopt;
  return *MpaEnhanced::parse(private_data_);
}

// The words of the enhanced setup are a part of the private data on the wire, but not for the user.
Bytes MpaFrameView::user_data() const {
  return private_data_.subspan(frame_.enhanced ? MpaEnhanced::header_bytes : 0);
}

// Checks the length only. The CRC is a question of its own, because a stream may be without.
Result<FpduView, WireError> FpduView::check(Bytes stream) {
  if (stream.size() < fpdu_length_bytes) return WireError::truncated;
  const std::size_t size = fpdu_bytes(load_fpdu_length(stream.data()));
  if (stream.size() < size) return WireError::truncated;
  return FpduView(stream.first(size));
}

std::size_t mulpdu_bytes(std::size_t emss_bytes, bool markers) {
  constexpr std::size_t min_bytes = 128;
  constexpr std::size_t max_bytes = 64768;
  // RFC 5044 §3: length field and CRC take six bytes, the remainder keeps FPDUs aligned to four
  // bytes, and with markers there must be room for as many as a segment of this size can have.
  std::size_t overhead = fpdu_length_bytes + fpdu_crc_bytes + emss_bytes % 4;
  if (markers) {
    overhead += marker_bytes * ((emss_bytes + marker_interval_bytes - 1) / marker_interval_bytes);
  }
  if (emss_bytes < overhead) return min_bytes;
  return std::clamp(emss_bytes - overhead, min_bytes, max_bytes);
}

Result<Marker, WireError> Marker::parse(Bytes bytes) {
  if (bytes.size() < marker_bytes) return WireError::truncated;
  // RFC 5044 §4.3: the receiver treats the two low bits as zero and ignores the reserved half.
  return Marker{
      static_cast<std::uint16_t>(field::marker::fpdu_pointer.load(bytes.data()) & pointer_mask)};
}

void Marker::emit(MutableBytes out) const {
  field::marker::reserved.store(out.data(), 0);
  field::marker::fpdu_pointer.store(out.data(),
                                    static_cast<std::uint16_t>(fpdu_pointer & pointer_mask));
}

// The reserved half is the only fixed part of a marker, so a match is a hint and no proof.
bool Marker::may_be_at(Bytes bytes) {
  return bytes.size() >= marker_bytes && field::marker::reserved.load(bytes.data()) == 0;
}

}  // namespace weft::wire
