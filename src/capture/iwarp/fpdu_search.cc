#include "capture/iwarp/fpdu_search.h"

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "wire/ddp.h"
#include "wire/markers.h"
#include "wire/mpa.h"
#include "wire/rdmap.h"

namespace weft::capture {
namespace {

// The control byte of DDP has the bits T and L, four reserved bits, and the version (RFC 5041
// §4.1). That of RDMAP has the version, two reserved bits, and the opcode (RFC 5040 §4.1).
constexpr std::byte ddp_reserved_mask{0x3C};
constexpr std::uint8_t rdmap_fixed_mask = 0xF0;
constexpr std::uint8_t rdmap_fixed = wire::rdmap_version << 6;

// Evidence from both control bytes: fixed bits, and the opcodes that are possible with each model.
constexpr unsigned control_bits = 11;
constexpr unsigned crc_bits = 32;
constexpr unsigned same_stag_bits = 20;
constexpr unsigned next_offset_bits = 24;
constexpr unsigned next_msn_bits = 20;
constexpr unsigned zero_field_bits = 8;  // lower, because zeros are frequent in any data
constexpr unsigned queue_bits = 24;
constexpr unsigned fixed_length_bits = 12;
constexpr unsigned segment_end_bits = 10;
constexpr std::size_t sufficient_pointers = 2;
// A random MSN of 32 bits is within these 12 bits with a chance of 2^-20, hence next_msn_bits.
constexpr std::uint32_t msn_slack = 4096;

// Bytes of which one search computes CRCs. Random data needs almost none, because two headers in
// their places come first.
constexpr std::size_t most_crc_bytes = 1024 * 1024;

// The decoded header of an FPDU candidate.
struct Header {
  std::size_t size_bytes = 0;
  bool tagged = false;
  std::uint32_t stag = 0;
  std::uint64_t end_offset = 0;  // tagged offset after its payload
  std::uint64_t offset = 0;
  std::uint32_t queue = 0;
  std::uint32_t msn = 0;
  wire::RdmapOpcode opcode = wire::RdmapOpcode::write;
};

// Tests the fixed bits only. It rejects most candidates, so it must be fast. The control bytes
// follow the length field, which has two bytes.
bool quick_look(const std::byte* at) {
  constexpr std::byte ddp_fixed{wire::ddp_version};
  return (at[2] & (ddp_reserved_mask | std::byte{3})) == ddp_fixed &&
         (std::to_integer<std::uint8_t>(at[3]) & rdmap_fixed_mask) == rdmap_fixed;
}

// Returns the queue of an untagged message (RFC 5040 §4.1, RFC 7306 §4); nothing if the opcode is
// tagged or unknown.
std::optional<std::uint32_t> queue_of(wire::RdmapOpcode opcode) {
  using Op = wire::RdmapOpcode;
  switch (opcode) {
    case Op::send:
    case Op::send_invalidate:
    case Op::send_solicited:
    case Op::send_solicited_invalidate:
    case Op::immediate_data:
    case Op::immediate_data_solicited:
      return wire::queue::send;
    case Op::read_request:
    case Op::atomic_request:
      return wire::queue::request;
    case Op::terminate:
      return wire::queue::terminate;
    case Op::atomic_response:
      return wire::queue::atomic_response;
    default:
      return std::nullopt;
  }
}

// Returns the payload size of messages that have a fixed one; 0: any size.
std::size_t fixed_payload(wire::RdmapOpcode opcode) {
  using Op = wire::RdmapOpcode;
  switch (opcode) {
    case Op::read_request:
      return wire::ReadRequest::header_bytes;
    case Op::atomic_request:
      return wire::AtomicRequest::header_bytes;
    case Op::atomic_response:
      return wire::AtomicResponse::header_bytes;
    case Op::immediate_data:
    case Op::immediate_data_solicited:
      return wire::ImmediateData::header_bytes;
    default:
      return 0;
  }
}

bool invalidates(wire::RdmapOpcode opcode) {
  return opcode == wire::RdmapOpcode::send_invalidate ||
         opcode == wire::RdmapOpcode::send_solicited_invalidate;
}

// Returns the evidence in a tagged header; nothing if it cannot be one.
std::optional<unsigned> tagged_bits(Bytes ulpdu, std::size_t ulpdu_bytes, Header& header,
                                    const FpduExpectation& expected) {
  const auto view = wire::TaggedView::check(ulpdu);
  if (!view || ulpdu_bytes < wire::DdpTagged::header_bytes) return std::nullopt;
  if (header.opcode != wire::RdmapOpcode::write &&
      header.opcode != wire::RdmapOpcode::read_response) {
    return std::nullopt;
  }
  header.tagged = true;
  header.stag = view->stag();
  header.offset = view->tagged_offset();
  header.end_offset = header.offset + (ulpdu_bytes - wire::DdpTagged::header_bytes);
  // Unused entries of `stags` are 0, so a header with STag 0 is no evidence.
  const bool known_stag =
      header.stag != 0 && std::ranges::find(expected.stags, header.stag) != expected.stags.end();
  return control_bits + (known_stag ? same_stag_bits : 0);
}

// Returns the evidence in an untagged header; nothing if it cannot be one.
std::optional<unsigned> untagged_bits(Bytes ulpdu, std::size_t ulpdu_bytes, Header& header,
                                      const FpduExpectation& expected) {
  const auto view = wire::UntaggedView::check(ulpdu);
  if (!view || ulpdu_bytes < wire::DdpUntagged::header_bytes) return std::nullopt;
  const auto queue = queue_of(header.opcode);
  if (!queue || view->queue() != *queue || view->msn() == 0) return std::nullopt;
  header.queue = *queue;
  header.msn = view->msn();
  unsigned bits = control_bits + (*queue == 0 ? zero_field_bits : queue_bits);
  if (!invalidates(header.opcode)) {
    // RFC 5040 §4.1: the field is zero here, but receivers ignore it.
    if (view->invalidate_stag() == 0) bits += zero_field_bits;
  }
  if (view->message_offset() == 0) bits += zero_field_bits;
  if (const std::size_t payload = fixed_payload(header.opcode); payload > 0) {
    if (ulpdu_bytes != wire::DdpUntagged::header_bytes + payload) return std::nullopt;
    bits += fixed_length_bits;
  }
  const std::uint32_t last = *queue == wire::queue::send      ? expected.send_msn
                             : *queue == wire::queue::request ? expected.request_msn
                                                              : 0;
  if (last != 0 && header.msn - last <= msn_slack) bits += next_msn_bits;
  return bits;
}

// Returns the evidence in the header at the beginning of `bytes`; nothing if there cannot be one.
std::optional<unsigned> header_bits(Bytes bytes, const FpduExpectation& expected, Header& header) {
  const std::uint16_t ulpdu_bytes = wire::load_fpdu_length(bytes.data());
  if (!quick_look(bytes.data())) return std::nullopt;
  header.size_bytes = wire::fpdu_bytes(ulpdu_bytes);
  header.opcode = wire::rdmap_opcode(std::to_integer<std::uint8_t>(bytes[3]));
  const Bytes ulpdu = bytes.subspan(wire::fpdu_length_bytes);
  return wire::ddp_is_tagged(ulpdu[0]) ? tagged_bits(ulpdu, ulpdu_bytes, header, expected)
                                       : untagged_bits(ulpdu, ulpdu_bytes, header, expected);
}

// Returns the additional evidence if a header continues the one before it.
unsigned sequel_bits(const Header& before, const Header& header) {
  if (before.tagged != header.tagged) return 0;
  if (header.tagged) {
    return (header.stag == before.stag ? same_stag_bits : 0) +
           (header.offset == before.end_offset ? next_offset_bits : 0);
  }
  return header.queue == before.queue && header.msn - before.msn <= 1 ? next_msn_bits : 0;
}

enum class Verdict : std::uint8_t { no, perhaps, yes };

// CRCs of a sequence of FPDUs that were not computed yet. They are computed only when they can
// decide, and only over `budget_bytes`: data may be made so that every place looks like the
// beginning of a long FPDU.
class PendingCrcs {
 public:
  explicit PendingCrcs(std::size_t& budget_bytes) : budget_bytes_(budget_bytes) {}

  void add(Bytes fpdu) { fpdus_.push_back(fpdu); }
  // Returns the evidence if all of them are correct.
  [[nodiscard]] unsigned possible_bits() const {
    return crc_bits * static_cast<unsigned>(fpdus_.size());
  }
  // Computes them, and returns the evidence. `last_good`: whether the last one is correct.
  unsigned compute(bool& any_good, bool& last_good) {
    unsigned bits = 0;
    last_good = false;
    for (const Bytes fpdu : fpdus_) {
      last_good = take(fpdu.size()) && wire::fpdu_crc_good(fpdu);
      any_good |= last_good;
      if (last_good) bits += crc_bits;
    }
    fpdus_.clear();
    return bits;
  }

 private:
  bool take(std::size_t bytes) {
    if (bytes > budget_bytes_) return false;
    budget_bytes_ -= bytes;
    return true;
  }

  std::size_t& budget_bytes_;
  std::vector<Bytes> fpdus_;
};

// Follows the lengths from FPDU to FPDU, beginning with the first byte, and sums up the evidence.
Verdict judge(Bytes bytes, const FpduExpectation& expected, unsigned threshold_bits,
              bool ends_segment, std::size_t& crc_budget_bytes, bool& crc_good) {
  unsigned bits = 0;
  std::size_t walked = 0;     // bytes of FPDUs before the current one
  std::size_t confirmed = 0;  // those that a following header or a CRC confirms
  std::optional<Header> before;
  PendingCrcs crcs(crc_budget_bytes);
  crc_good = false;
  const auto suffices = [&] { return bits >= threshold_bits && confirmed >= expected.least_bytes; };
  // Returns whether the CRC of the last FPDU was computed and is correct.
  const auto check_crcs = [&] {
    bool last_good = false;
    if (bits + crcs.possible_bits() >= threshold_bits) bits += crcs.compute(crc_good, last_good);
    return last_good;
  };
  while (bytes.size() >= fpdu_header_bytes) {
    Header header;
    const auto more = header_bits(bytes, expected, header);
    if (!more) return Verdict::no;
    // A header at this place confirms the lengths that led to it.
    confirmed = walked;
    bits += *more + (before ? sequel_bits(*before, header) : 0);
    if (bytes.size() < header.size_bytes) break;
    walked += header.size_bytes;
    crcs.add(bytes.first(header.size_bytes));
    bytes = bytes.subspan(header.size_bytes);
    // Senders usually end an FPDU where a TCP segment ends.
    if (ends_segment && bytes.empty()) bits += segment_end_bits;
    if (check_crcs()) confirmed = walked;
    if (suffices()) return Verdict::yes;
    before = header;
  }
  check_crcs();
  return suffices() ? Verdict::yes : Verdict::perhaps;
}

// Does the same in a stream with markers. `bytes` begins at a stream position that is `phase` after
// a multiple of 512. `plain` is scratch memory.
//
// A marker between two FPDUs is all zeros, and so is the CRC field of many senders that do not use
// it. So only a marker inside an FPDU is evidence, by its pointer or by a CRC over it.
Verdict judge_marked(Bytes bytes, std::uint64_t phase, const FpduExpectation& expected,
                     std::vector<std::byte>& plain, bool& crc_good) {
  unsigned bits = 0;
  std::size_t pointers = 0;
  crc_good = false;
  while (bits < expected.threshold_bits || (pointers < sufficient_pointers && !crc_good)) {
    const auto fpdu = wire::strip_markers(phase, bytes, plain);
    if (!fpdu) return fpdu.error() == wire::WireError::truncated ? Verdict::perhaps : Verdict::no;
    if (fpdu->plain_bytes < fpdu_header_bytes) return Verdict::no;
    Header header;
    const auto more = header_bits(Bytes(plain).first(fpdu->plain_bytes), expected, header);
    if (!more) return Verdict::no;
    bits += *more;
    const std::size_t markers = (fpdu->stream_bytes - fpdu->plain_bytes) / wire::marker_bytes;
    pointers += markers - (phase == 0 && markers > 0 ? 1 : 0);
    if (fpdu->crc_good && markers > 0) {
      bits += crc_bits;
      crc_good = true;
    }
    bytes = bytes.subspan(fpdu->stream_bytes);
    phase = (phase + fpdu->stream_bytes) % wire::marker_interval_bytes;
  }
  return Verdict::yes;
}

}  // namespace

std::optional<unsigned> fpdu_evidence_bits(Bytes bytes, const FpduExpectation& expected) {
  Header header;
  return header_bits(bytes, expected, header);
}

// Tries each aligned offset of the window. It remembers the first undecided candidate, so that
// earlier offsets are not tried again when the window has grown.
std::optional<FpduStart> FpduSearch::find(Bytes window, const FpduExpectation& expected,
                                          bool ends_segment) {
  std::size_t crc_budget_bytes = most_crc_bytes;
  bool undecided = false;
  std::size_t at = next_;
  const auto aligned = [&](std::size_t offset) {
    return (offset + expected.phase) % expected.alignment == 0;
  };
  while (!aligned(at)) ++at;
  for (; at + fpdu_header_bytes <= window.size(); at += expected.alignment) {
    if (!quick_look(&window[at])) continue;
    bool crc_good = false;
    // The beginning of the window has a threshold of its own, because it is a likelier place than
    // the others.
    const unsigned threshold = at == 0 ? expected.first_threshold_bits : expected.threshold_bits;
    const Verdict verdict =
        judge(window.subspan(at), expected, threshold, ends_segment, crc_budget_bytes, crc_good);
    if (verdict == Verdict::yes) return FpduStart{at, crc_good};
    if (verdict == Verdict::perhaps && !undecided) {
      undecided = true;
      next_ = at;
    }
  }
  if (!undecided) next_ = at;
  return std::nullopt;
}

// Tries each of the 512 possible phases of the markers (RFC 5044 §4.3).
std::optional<MarkedStart> find_marked_fpdu(Bytes window, const FpduExpectation& expected) {
  constexpr std::size_t interval = wire::marker_interval_bytes;
  std::vector<std::byte> plain(wire::fpdu_bytes(wire::fpdu_max_ulpdu_bytes));
  for (std::size_t first = 0; first < interval; ++first) {
    for (std::size_t at = first; at + fpdu_header_bytes <= window.size(); at += interval) {
      if (!wire::Marker::may_be_at(window.subspan(at))) break;
      const std::size_t back = wire::Marker::parse(window.subspan(at))->fpdu_pointer;
      // The FPDU of this marker begins before the window, so its header is not there.
      if (back > at) continue;
      const std::uint64_t phase = (interval - back % interval) % interval;
      bool crc_good = false;
      if (judge_marked(window.subspan(at - back), phase, expected, plain, crc_good) ==
          Verdict::yes) {
        return MarkedStart{.start = {at - back, crc_good}, .marker = at};
      }
      break;  // only the first FPDU that begins in the window is tested
    }
  }
  return std::nullopt;
}

}  // namespace weft::capture
