// MPA, Marker PDU Aligned framing: RFC 5044, with the enhanced connection data of RFC 6581.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

// --- Connection set-up (RFC 5044 §7.1) -----------------------------------------------------------

enum class MpaKind : std::uint8_t { request, reply };

// How two Weft devices recognize each other: in two flags that RFC 5044 §7.1 reserves, and that
// receivers must not check. A reply has another mark than the request, because some responders (the
// kernel's siw and erdma) make their reply out of the request, reserved flags included.
enum class MpaMark : std::uint8_t { none = 0, request = 0x01, reply = 0x02, both = 0x03 };

// The fixed part of an MPA request or reply frame; the private data follows it.
struct MpaFrame {
  static constexpr std::size_t header_bytes = 20;
  static constexpr std::size_t max_private_data_bytes = 512;

  MpaKind kind = MpaKind::request;
  bool markers = false;   // M: the sender of this frame wants to receive markers
  bool crc = false;       // C: the sender of this frame wants CRCs
  bool reject = false;    // R: replies only
  bool enhanced = false;  // S: private data begins with MpaEnhanced (RFC 6581 §5)
  MpaMark mark = MpaMark::none;
  // With a mark: the sender of this frame understands control words at wire::agreed_control_stag,
  // and holds wire::agreed_hold_bytes. Another reserved flag: siw calls it STAG0_OK and ignores it.
  bool words = false;
  // With a mark: the sender of this frame is an end of an extended connection (XRC), a sending one
  // in a request and a receiving one in a reply. The last reserved flag, siw's GSO_EXP.
  bool extended = false;
  std::uint8_t revision = 1;
  std::uint16_t private_data_bytes = 0;  // includes the four bytes of MpaEnhanced

  // Other reserved flags are ignored (RFC 5044 §7.1). Needs header_bytes bytes.
  [[nodiscard]] static Result<MpaFrame, WireError> parse(Bytes bytes);
  // Writes header_bytes bytes.
  void emit(MutableBytes out) const;
  bool operator==(const MpaFrame&) const = default;
};

// Enhanced RDMA Connection Establishment data (RFC 6581 §5.1): first four bytes of private data.
struct MpaEnhanced {
  static constexpr std::size_t header_bytes = 4;
  static constexpr std::uint16_t no_negotiation = 0x3FFF;  // IRD or ORD is not negotiated

  bool peer_to_peer = false;  // A
  bool rtr_send = false;      // B: zero-length FPDU as ready-to-receive message
  bool rtr_write = false;     // C: zero-length RDMA Write
  bool rtr_read = false;      // D: zero-length RDMA Read
  std::uint16_t ird = 0;      // 14 bits
  std::uint16_t ord = 0;      // 14 bits

  [[nodiscard]] static Result<MpaEnhanced, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  bool operator==(const MpaEnhanced&) const = default;
};

// A whole request or reply frame, its private data included. Borrows the bytes.
class MpaFrameView {
 public:
  // Fails as MpaFrame::parse does, and with truncated while private data is missing. Ignores bytes
  // beyond the frame.
  [[nodiscard]] static Result<MpaFrameView, WireError> check(Bytes bytes);

  [[nodiscard]] const MpaFrame& frame() const { return frame_; }
  [[nodiscard]] std::size_t size() const { return MpaFrame::header_bytes + private_data_.size(); }
  [[nodiscard]] std::optional<MpaEnhanced> enhanced() const;
  // The private data of the user on the other side: without MpaEnhanced.
  [[nodiscard]] Bytes user_data() const;

 private:
  MpaFrameView(const MpaFrame& frame, Bytes private_data)
      : frame_(frame), private_data_(private_data) {}

  MpaFrame frame_;
  Bytes private_data_;
};

// --- FPDUs (RFC 5044 §4) -------------------------------------------------------------------------

inline constexpr std::size_t fpdu_length_bytes = 2;
inline constexpr std::size_t fpdu_crc_bytes = 4;
inline constexpr std::size_t fpdu_max_ulpdu_bytes = 0xFFFF;

// Returns the size of the pad that aligns length field and ULPDU to four bytes.
[[nodiscard]] constexpr std::size_t fpdu_pad_bytes(std::size_t ulpdu_bytes) {
  return (4 - (fpdu_length_bytes + ulpdu_bytes) % 4) % 4;
}

// The length field: the size of the ULPDU. `fpdu` is the first byte of an FPDU without a marker.
[[nodiscard]] inline std::uint16_t load_fpdu_length(const std::byte* fpdu) {
  return load_be<std::uint16_t>(fpdu);
}
// `ulpdu_bytes` is at most fpdu_max_ulpdu_bytes.
inline void store_fpdu_length(std::byte* fpdu, std::size_t ulpdu_bytes) {
  store_be(fpdu, static_cast<std::uint16_t>(ulpdu_bytes));
}

// Returns the size of a whole FPDU without markers.
[[nodiscard]] constexpr std::size_t fpdu_bytes(std::size_t ulpdu_bytes) {
  return fpdu_length_bytes + ulpdu_bytes + fpdu_pad_bytes(ulpdu_bytes) + fpdu_crc_bytes;
}

// The CRC travels least significant byte first (RFC 5044 §4.4, Figure 5).
[[nodiscard]] inline std::uint32_t load_fpdu_crc(const std::byte* at) {
  return load_le<std::uint32_t>(at);
}
inline void store_fpdu_crc(std::byte* at, std::uint32_t crc) {
  store_le(at, crc);
}

// Whether the CRC at the end of an FPDU is that of the bytes before it. An FPDU with markers begins
// with the marker in front of it, if there is one (RFC 5044 §4.4). Needs fpdu_crc_bytes bytes.
[[nodiscard]] inline bool fpdu_crc_good(Bytes fpdu) {
  const auto covered = fpdu.first(fpdu.size() - fpdu_crc_bytes);
  return crc32c(covered) == load_fpdu_crc(covered.data() + covered.size());
}

// A whole FPDU without markers. Borrows the bytes.
class FpduView {
 public:
  // `stream` begins with an FPDU and may have more bytes behind it. Fails with truncated until the
  // FPDU is whole.
  [[nodiscard]] static Result<FpduView, WireError> check(Bytes stream);

  [[nodiscard]] std::size_t size() const { return fpdu_.size(); }
  [[nodiscard]] Bytes ulpdu() const {
    return fpdu_.subspan(fpdu_length_bytes, load_fpdu_length(fpdu_.data()));
  }
  [[nodiscard]] std::uint32_t crc() const {
    return load_fpdu_crc(fpdu_.last(fpdu_crc_bytes).data());
  }
  [[nodiscard]] bool crc_good() const { return fpdu_crc_good(fpdu_); }

 private:
  explicit FpduView(Bytes fpdu) : fpdu_(fpdu) {}

  Bytes fpdu_;
};

// Returns the MULPDU for an effective maximum segment size (RFC 5044 §3), clamped to 128..64768.
[[nodiscard]] std::size_t mulpdu_bytes(std::size_t emss_bytes, bool markers);

// --- Markers (RFC 5044 §4.3) ---------------------------------------------------------------------

inline constexpr std::size_t marker_bytes = 4;
inline constexpr std::size_t marker_interval_bytes = 512;

// Returns the distance from stream position `position` (counted from the first FPDU byte, markers
// included) to the next marker: 0 if there is a marker at `position` itself.
[[nodiscard]] constexpr std::size_t bytes_to_marker(std::uint64_t position) {
  return static_cast<std::size_t>((marker_interval_bytes - position % marker_interval_bytes) %
                                  marker_interval_bytes);
}

struct Marker {
  std::uint16_t fpdu_pointer = 0;  // distance back to the first byte of the FPDU's length field

  [[nodiscard]] static Result<Marker, WireError> parse(Bytes bytes);
  void emit(MutableBytes out) const;
  // Whether the reserved half of the marker at these bytes is zero, as every sender writes it.
  // Receivers ignore that half, but an analysis uses it to rule out places for markers.
  [[nodiscard]] static bool may_be_at(Bytes bytes);
  bool operator==(const Marker&) const = default;
};

}  // namespace weft::wire
