// DDP, Direct Data Placement: RFC 5041 §4. The byte that DDP reserves for its upper layer, RDMAP's
// control byte, is part of these headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

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

// Looks at the first byte of a ULPDU.
[[nodiscard]] constexpr bool ddp_is_tagged(std::byte control) {
  return (control & detail::ddp_tagged_bit) != std::byte{0};
}
[[nodiscard]] constexpr bool ddp_is_last(std::byte control) {
  return (control & detail::ddp_last_bit) != std::byte{0};
}
[[nodiscard]] constexpr std::uint8_t ddp_version_of(std::byte control) {
  return std::to_integer<std::uint8_t>(control & detail::ddp_version_mask);
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

// A DDP segment whose header was checked: the accessors cannot fail. Borrows the bytes.
class TaggedView {
 public:
  // Fails as DdpTagged::parse does.
  [[nodiscard]] static Result<TaggedView, WireError> check(Bytes segment);

  [[nodiscard]] bool last() const { return ddp_is_last(segment_[0]); }
  [[nodiscard]] std::uint8_t rdmap_control() const {
    return std::to_integer<std::uint8_t>(segment_[1]);
  }
  [[nodiscard]] std::uint32_t stag() const { return load_be<std::uint32_t>(&segment_[2]); }
  [[nodiscard]] std::uint64_t tagged_offset() const { return load_be<std::uint64_t>(&segment_[6]); }
  [[nodiscard]] Bytes payload() const { return segment_.subspan(DdpTagged::header_bytes); }

 private:
  explicit TaggedView(Bytes segment) : segment_(segment) {}

  Bytes segment_;
};

class UntaggedView {
 public:
  // Fails as DdpUntagged::parse does.
  [[nodiscard]] static Result<UntaggedView, WireError> check(Bytes segment);

  [[nodiscard]] bool last() const { return ddp_is_last(segment_[0]); }
  [[nodiscard]] std::uint8_t rdmap_control() const {
    return std::to_integer<std::uint8_t>(segment_[1]);
  }
  [[nodiscard]] std::uint32_t invalidate_stag() const {
    return load_be<std::uint32_t>(&segment_[2]);
  }
  [[nodiscard]] std::uint32_t queue() const { return load_be<std::uint32_t>(&segment_[6]); }
  [[nodiscard]] std::uint32_t msn() const { return load_be<std::uint32_t>(&segment_[10]); }
  [[nodiscard]] std::uint32_t message_offset() const {
    return load_be<std::uint32_t>(&segment_[14]);
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
  out[0] = detail::ddp_control(true, last);
  out[1] = std::byte{rdmap_control};
  store_be(&out[2], stag);
  store_be(&out[6], tagged_offset);
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
  out[0] = detail::ddp_control(false, last);
  out[1] = std::byte{rdmap_control};
  store_be(&out[2], invalidate_stag);
  store_be(&out[6], queue);
  store_be(&out[10], msn);
  store_be(&out[14], message_offset);
}

}  // namespace weft::wire
