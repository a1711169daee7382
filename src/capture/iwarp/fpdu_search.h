// Finds the beginning of an FPDU in the middle of a stream, by the values that its headers must
// have.
//
// Each field with a prescribed value is evidence, counted in bits: random data matches once in
// 2^bits. The length of an FPDU gives the start of the next one, and that header adds its own
// evidence; a correct CRC adds 32 bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace weft::capture {

// What is known about the stream before the search.
struct FpduExpectation {
  std::size_t alignment = 1;      // FPDUs begin at multiples of this, counted from `phase`
  std::size_t phase = 0;          // stream position of the window's first byte, modulo `alignment`
  std::uint32_t send_msn = 0;     // the last MSN on queue 0; 0: none
  std::uint32_t request_msn = 0;  // the last MSN on queue 1; 0: none
  std::array<std::uint32_t, 4> stags{};  // STags of earlier tagged segments; 0: none
  unsigned threshold_bits = 48;          // evidence that is sufficient
  unsigned first_threshold_bits = 48;    // the same for the first byte of the window
  // Consecutive FPDUs must be found over this many bytes. If it is larger than the distance of
  // markers, it proves that the stream has none.
  std::size_t least_bytes = 0;
};

struct FpduStart {
  std::size_t offset = 0;  // in the window
  bool crc_good = false;   // a CRC was checked and is correct: the stream uses CRCs
};

struct MarkedStart {
  FpduStart start;
  std::size_t marker = 0;  // position of a marker in the window
};
// Finds the first FPDU of a stream with markers (RFC 5044 §4.3) at unknown positions.
[[nodiscard]] std::optional<MarkedStart> find_marked_fpdu(Bytes window,
                                                          const FpduExpectation& expected);

// Finds the first FPDU in a window, and keeps its progress while the window grows at its end.
class FpduSearch {
 public:
  // `window` must begin where it began in the last call, or skip() was called. `ends_segment`: the
  // window ends with a TCP segment, where senders usually end an FPDU.
  [[nodiscard]] std::optional<FpduStart> find(Bytes window, const FpduExpectation& expected,
                                              bool ends_segment);
  // The first `bytes` of the window were removed.
  void skip(std::size_t bytes) { next_ -= bytes < next_ ? bytes : next_; }
  void reset() { next_ = 0; }

 private:
  std::size_t next_ = 0;  // candidates before it are rejected
};

// Returns the evidence for an FPDU header at the beginning of `bytes`; nothing if it cannot be one.
// Needs at least fpdu_header_bytes.
inline constexpr std::size_t fpdu_header_bytes = 20;
[[nodiscard]] std::optional<unsigned> fpdu_evidence_bits(Bytes bytes,
                                                         const FpduExpectation& expected);

}  // namespace weft::capture
