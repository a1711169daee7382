// Finds where an FPDU begins in the middle of a stream, by what its headers must look like.
//
// Each field that has to have a certain value is evidence, counted in bits: by chance it looks so
// once in 2^bits. An FPDU's length tells where the next one must begin, and that one's header adds
// its own; a CRC that is right adds 32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace weft::capture {

// What is known beforehand of the stream.
struct FpduExpectation {
  std::size_t alignment = 1;             // FPDUs begin at multiples of this, counted from `phase`
  std::size_t phase = 0;                 // of the window's first byte
  std::uint32_t send_msn = 0;            // the last one seen on queue 0; 0: none
  std::uint32_t request_msn = 0;         // and on queue 1
  std::array<std::uint32_t, 4> stags{};  // of tagged segments before; 0: none
  unsigned threshold_bits = 48;          // evidence that suffices
  unsigned first_threshold_bits = 48;    // at the beginning of the window
  // FPDUs must be found one behind the other over so many bytes: where that is more than the
  // distance of markers, there are none.
  std::size_t least_bytes = 0;
};

struct FpduStart {
  std::size_t offset = 0;  // in the window
  bool crc_good = false;   // it was checked and fits: this stream has CRCs
};

struct MarkedStart {
  FpduStart start;
  std::size_t marker = 0;  // in the window: where a marker stands
};
// The same for a stream with markers (RFC 5044 §4.3), of which it is unknown where they stand.
[[nodiscard]] std::optional<MarkedStart> find_marked_fpdu(Bytes window,
                                                          const FpduExpectation& expected);

// Keeps what it has found out while the window grows at its end.
class FpduSearch {
 public:
  // `window` begins where it began the last time, or skip() was told. `ends_segment`: its end is
  // the end of a TCP segment, where senders like to end an FPDU.
  [[nodiscard]] std::optional<FpduStart> find(Bytes window, const FpduExpectation& expected,
                                              bool ends_segment);
  // The first `bytes` of the window were taken off.
  void skip(std::size_t bytes) { next_ -= bytes < next_ ? bytes : next_; }
  void reset() { next_ = 0; }

 private:
  std::size_t next_ = 0;  // candidates before it are out of the question
};

// The evidence that an FPDU's header is at the beginning of `bytes`; nothing where it cannot be
// one. Needs fpdu_header_bytes.
inline constexpr std::size_t fpdu_header_bytes = 20;
[[nodiscard]] std::optional<unsigned> fpdu_evidence_bits(Bytes bytes,
                                                         const FpduExpectation& expected);

}  // namespace weft::capture
