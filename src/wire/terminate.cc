#include "wire/terminate.h"

#include <algorithm>

#include "wire/ddp.h"

namespace weft::wire {

namespace {

constexpr std::size_t segment_length_bytes = 2;  // what precedes the DDP header

// RFC 5040 §4.8: the three bits of HdrCt.
constexpr std::byte length_valid_bit{0x80};  // M
constexpr std::byte ddp_header_bit{0x40};    // D
constexpr std::byte rdmap_header_bit{0x20};  // R

// Linux's siw declares the control word as bit-fields of a little-endian word: on the wire layer
// and type change places and HdrCt lies, in reverse order, in bits that are reserved.
constexpr std::byte siw_ddp_header_bit{0x02};
constexpr std::byte siw_rdmap_header_bit{0x04};
constexpr std::byte siw_header_bits{0x07};
constexpr std::byte header_bits{0xE0};

struct Control {
  TerminateCode code;
  bool has_ddp_header = false;
  bool has_rdmap_header = false;
};

bool is_set(std::byte flags, std::byte bits) {
  return (flags & bits) != std::byte{0};
}

Control parse_control(Bytes bytes) {
  const auto high = static_cast<std::uint8_t>(std::to_integer<unsigned>(bytes[0]) >> 4);
  const auto low = static_cast<std::uint8_t>(std::to_integer<unsigned>(bytes[0]) & 0x0F);
  const auto code = std::to_integer<std::uint8_t>(bytes[1]);
  const std::byte flags = bytes[2];
  if (!is_set(flags, header_bits) && is_set(flags, siw_header_bits)) {
    return {.code = {.layer = low, .type = high, .code = code},
            .has_ddp_header = is_set(flags, siw_ddp_header_bit),
            .has_rdmap_header = is_set(flags, siw_rdmap_header_bit)};
  }
  return {.code = {.layer = high, .type = low, .code = code},
          .has_ddp_header = is_set(flags, ddp_header_bit),
          .has_rdmap_header = is_set(flags, rdmap_header_bit)};
}

// Parses the DDP header at fault and what precedes it. Returns the bytes behind it.
Result<Bytes, WireError> parse_ddp_header(Bytes bytes, Terminate& terminate) {
  if (bytes.size() < segment_length_bytes) return WireError::truncated;
  const auto header = bytes.subspan(segment_length_bytes);
  if (header.empty()) return header;
  const std::size_t header_bytes =
      ddp_is_tagged(header[0]) ? DdpTagged::header_bytes : DdpUntagged::header_bytes;
  if (header.size() < header_bytes) return WireError::truncated;

  terminate.ddp_segment_bytes = load_be<std::uint16_t>(bytes.data());
  terminate.ddp_header_bytes = static_cast<std::uint8_t>(header_bytes);
  std::copy_n(header.begin(), header_bytes, terminate.ddp_header.begin());
  return header.subspan(header_bytes);
}

// The R bit may also stand for the header of an Atomic Request (RFC 7306 §8), which is not kept.
bool may_be_read_request(const Terminate& terminate) {
  if (terminate.ddp_header_bytes == 0) return true;
  const auto control = std::to_integer<std::uint8_t>(terminate.ddp_header[1]);
  return rdmap_opcode(control) == RdmapOpcode::read_request;
}

}  // namespace

std::size_t Terminate::size() const {
  return fixed_bytes + (ddp_header_bytes > 0 ? segment_length_bytes + ddp_header_bytes : 0) +
         (has_read_request ? ReadRequest::header_bytes : 0);
}

Result<Terminate, WireError> Terminate::parse(Bytes bytes) {
  if (bytes.size() < fixed_bytes) return WireError::truncated;
  const Control control = parse_control(bytes);
  Terminate terminate;
  terminate.code = control.code;

  auto rest = bytes.subspan(fixed_bytes);
  if (control.has_ddp_header && !rest.empty()) {
    const auto behind = parse_ddp_header(rest, terminate);
    if (!behind) return behind.error();
    rest = *behind;
  }
  if (control.has_rdmap_header && !rest.empty() && may_be_read_request(terminate)) {
    const auto request = ReadRequest::parse(rest);
    if (!request) return request.error();
    terminate.has_read_request = true;
    terminate.read_request = *request;
  }
  return terminate;
}

void Terminate::emit(MutableBytes out) const {
  std::fill_n(out.begin(), fixed_bytes, std::byte{0});
  out[0] = static_cast<std::byte>(code.layer << 4 | (code.type & 0x0F));
  out[1] = std::byte{code.code};
  auto rest = out.subspan(fixed_bytes);
  if (ddp_header_bytes > 0) {
    out[2] |= length_valid_bit | ddp_header_bit;
    store_be(rest.data(), ddp_segment_bytes);
    std::copy_n(ddp_header.begin(), ddp_header_bytes, rest.begin() + segment_length_bytes);
    rest = rest.subspan(segment_length_bytes + ddp_header_bytes);
  }
  if (has_read_request) {
    out[2] |= rdmap_header_bit;
    read_request.emit(rest);
  }
}

}  // namespace weft::wire
