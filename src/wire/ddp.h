// DDP, Direct Data Placement: RFC 5041 §4. The byte that DDP reserves for its upper layer, RDMAP's
// control byte, is part of these headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"
#include "wire/field.h"

namespace weft::wire {

inline constexpr std::uint8_t ddp_version = 1;

namespace detail {
inline constexpr std::byte ddp_tagged_bit{0x80};
inline constexpr std::byte ddp_last_bit{0x40};
inline constexpr std::byte ddp_version_mask{0x03};

// The four reserved bits go out as zero (RFC 5041 §4.1).
[[nodiscard]] constexpr std::byte ddp_control(bool tagged, bool last) {
  return (tagged ? ddp_tagged_bit : std::byte{0}) | (last ? ddp_last_bit : std::byte{0}) |
         std::byte{ddp_version};
}
}  // namespace detail

// These take the first byte of a ULPDU.
[[nodiscard]] constexpr bool ddp_is_tagged(std::byte control) {
  return (control & detail::ddp_tagged_bit) != std::byte{0};
}
[[nodiscard]] constexpr bool ddp_is_last(std::byte control) {
  return (control & detail::ddp_last_bit) != std::byte{0};
}
[[nodiscard]] constexpr std::uint8_t ddp_version_of(std::byte control) {
  return std::to_integer<std::uint8_t>(control & detail::ddp_version_mask);
}

// The first two bytes of a ULPDU, the control fields of DDP and RDMAP, as one number.
[[nodiscard]] constexpr std::uint16_t ddp_controls(bool tagged, bool last,
                                                   std::uint8_t rdmap_control) {
  const auto ddp = std::to_integer<unsigned>(detail::ddp_control(tagged, last));
  return static_cast<std::uint16_t>(ddp << 8 | rdmap_control);
}
[[nodiscard]] inline std::uint16_t load_ddp_controls(const std::byte* ulpdu) {
  return load_be<std::uint16_t>(ulpdu);
}

// RFC 5041 §4.2
struct DdpTagged {
  static constexpr std::size_t header_bytes = 14;

  bool last = false;
  std::uint8_t rdmap_control = 0;
  std::uint32_t stag = 0;
  std::uint64_t tagged_offset = 0;

  // Fails with wrong_model on an untagged header and with bad_version on a foreign DDP version.
  [[nodiscard]] static Result<DdpTagged, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const DdpTagged&) const = default;
};

// RFC 5041 §4.3
struct DdpUntagged {
  static constexpr std::size_t header_bytes = 18;

  bool last = false;
  std::uint8_t rdmap_control = 0;
  std::uint32_t invalidate_stag = 0;  // for RDMAP: RFC 5040 §4.1; zero in other messages
  std::uint32_t queue = 0;
  std::uint32_t msn = 1;  // message sequence number, from 1 per queue
  std::uint32_t message_offset = 0;

  [[nodiscard]] static Result<DdpUntagged, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const DdpUntagged&) const = default;
};

namespace field::ddp_tagged {
inline constexpr Field8 control{0};
inline constexpr Field8 rdmap_control{control.end()};
inline constexpr Field32 stag{rdmap_control.end()};
inline constexpr Field64 tagged_offset{stag.end()};
static_assert(tagged_offset.end() == DdpTagged::header_bytes);
}  // namespace field::ddp_tagged

namespace field::ddp_untagged {
inline constexpr Field8 control{0};
inline constexpr Field8 rdmap_control{control.end()};
inline constexpr Field32 invalidate_stag{rdmap_control.end()};
inline constexpr Field32 queue{invalidate_stag.end()};
inline constexpr Field32 msn{queue.end()};
inline constexpr Field32 message_offset{msn.end()};
static_assert(message_offset.end() == DdpUntagged::header_bytes);
}  // namespace field::ddp_untagged

// A tagged DDP segment with a checked header: the accessors cannot fail. Borrows the bytes.
class TaggedView {
 public:
  // Fails as DdpTagged::parse does.
  [[nodiscard]] static Result<TaggedView, WireError> check(Bytes segment);

  [[nodiscard]] bool last() const { return ddp_is_last(segment_[field::ddp_tagged::control.at]); }
  [[nodiscard]] std::uint8_t rdmap_control() const {
    return field::ddp_tagged::rdmap_control.load(segment_.data());
  }
  [[nodiscard]] std::uint32_t stag() const { return field::ddp_tagged::stag.load(segment_.data()); }
  [[nodiscard]] std::uint64_t tagged_offset() const {
    return field::ddp_tagged::tagged_offset.load(segment_.data());
  }
  [[nodiscard]] Bytes payload() const { return segment_.subspan(DdpTagged::header_bytes); }

 private:
  explicit TaggedView(Bytes segment) : segment_(segment) {}

  Bytes segment_;
};

// The same for an untagged segment.
class UntaggedView {
 public:
  // Fails as DdpUntagged::parse does.
  [[nodiscard]] static Result<UntaggedView, WireError> check(Bytes segment);

  [[nodiscard]] bool last() const { return ddp_is_last(segment_[field::ddp_untagged::control.at]); }
  [[nodiscard]] std::uint8_t rdmap_control() const {
    return field::ddp_untagged::rdmap_control.load(segment_.data());
  }
  [[nodiscard]] std::uint32_t invalidate_stag() const {
    return field::ddp_untagged::invalidate_stag.load(segment_.data());
  }
  [[nodiscard]] std::uint32_t queue() const {
    return field::ddp_untagged::queue.load(segment_.data());
  }
  [[nodiscard]] std::uint32_t msn() const { return field::ddp_untagged::msn.load(segment_.data()); }
  [[nodiscard]] std::uint32_t message_offset() const {
    return field::ddp_untagged::message_offset.load(segment_.data());
  }
  [[nodiscard]] Bytes payload() const { return segment_.subspan(DdpUntagged::header_bytes); }

 private:
  explicit UntaggedView(Bytes segment) : segment_(segment) {}

  Bytes segment_;
};

// --- Inline, for the data path -------------------------------------------------------------------

inline Result<TaggedView, WireError> TaggedView::check(Bytes segment) {
  if (segment.size() < DdpTagged::header_bytes) return WireError::truncated;
  if (!ddp_is_tagged(segment[0])) return WireError::wrong_model;
  if (ddp_version_of(segment[0]) != ddp_version) return WireError::bad_version;
  return TaggedView(segment);
}

inline Result<DdpTagged, WireError> DdpTagged::parse(Bytes bytes) {
  const auto view = TaggedView::check(bytes);
  if (!view) return view.error();
  return DdpTagged{.last = view->last(),
                   .rdmap_control = view->rdmap_control(),
                   .stag = view->stag(),
                   .tagged_offset = view->tagged_offset()};
}

inline void DdpTagged::emit(MutableBytes out) const {
  namespace at = field::ddp_tagged;
  std::byte* header = out.data();
  header[at::control.at] = detail::ddp_control(true, last);
  at::rdmap_control.store(header, rdmap_control);
  at::stag.store(header, stag);
  at::tagged_offset.store(header, tagged_offset);
}

inline Result<UntaggedView, WireError> UntaggedView::check(Bytes segment) {
  if (segment.size() < DdpUntagged::header_bytes) return WireError::truncated;
  if (ddp_is_tagged(segment[0])) return WireError::wrong_model;
  if (ddp_version_of(segment[0]) != ddp_version) return WireError::bad_version;
  return UntaggedView(segment);
}

inline Result<DdpUntagged, WireError> DdpUntagged::parse(Bytes bytes) {
  const auto view = UntaggedView::check(bytes);
  if (!view) return view.error();
  return DdpUntagged{.last = view->last(),
                     .rdmap_control = view->rdmap_control(),
                     .invalidate_stag = view->invalidate_stag(),
                     .queue = view->queue(),
                     .msn = view->msn(),
                     .message_offset = view->message_offset()};
}

inline void DdpUntagged::emit(MutableBytes out) const {
  namespace at = field::ddp_untagged;
  std::byte* header = out.data();
  header[at::control.at] = detail::ddp_control(false, last);
  at::rdmap_control.store(header, rdmap_control);
  at::invalidate_stag.store(header, invalidate_stag);
  at::queue.store(header, queue);
  at::msn.store(header, msn);
  at::message_offset.store(header, message_offset);
}

}  // namespace weft::wire
