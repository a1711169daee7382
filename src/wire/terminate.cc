#include "wire/terminate.h"

#include <algorithm>

#include "wire/ddp.h"
#include "wire/field.h"

namespace weft::wire {

namespace field::terminate {
constexpr Field8 layer_and_type{0};  // four bits each
constexpr Field8 code{layer_and_type.end()};
constexpr Field8 header_control{code.end()};  // HdrCt, then five reserved bits
constexpr Field8 reserved{header_control.end()};
static_assert(reserved.end() == Terminate::fixed_bytes);
}  // namespace field::terminate

// The length of the segment at fault, before its DDP header.
namespace field::terminated_segment {
constexpr Field16 segment_bytes{0};
constexpr std::size_t header_at = segment_bytes.end();
}  // namespace field::terminated_segment

namespace {

constexpr std::size_t segment_length_bytes = field::terminated_segment::header_at;

// RFC 5040 §4.8: the three bits of HdrCt.
constexpr std::byte length_valid_bit{0x80};  // M
constexpr std::byte ddp_header_bit{0x40};    // D
constexpr std::byte rdmap_header_bit{0x20};  // R

// The software iWARP of Linux (siw) declares the control word as bit-fields of a little-endian
// word: on the wire, layer and type change places, and HdrCt is in reserved bits, in reverse order.
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

// A control word of siw is recognised by its HdrCt: the RFC's bits are zero and its reserved bits
// are not. Without any header the two look alike, and the RFC's layout is assumed.
Control parse_control(Bytes bytes) {
  namespace at = field::terminate;
  const std::uint8_t layer_and_type = at::layer_and_type.load(bytes.data());
  const auto high = static_cast<std::uint8_t>(layer_and_type >> 4);
  const auto low = static_cast<std::uint8_t>(layer_and_type & 0x0F);
  const std::uint8_t code = at::code.load(bytes.data());
  const std::byte flags = bytes[at::header_control.at];
  if (!is_set(flags, header_bits) && is_set(flags, siw_header_bits)) {
    return {.code = {.layer = low, .type = high, .code = code},
            .has_ddp_header = is_set(flags, siw_ddp_header_bit),
            .has_rdmap_header = is_set(flags, siw_rdmap_header_bit)};
  }
  return {.code = {.layer = high, .type = low, .code = code},
          .has_ddp_header = is_set(flags, ddp_header_bit),
          .has_rdmap_header = is_set(flags, rdmap_header_bit)};
}

// Parses the length of the segment at fault and its DDP header. Returns the bytes behind them.
Result<Bytes, WireError> parse_ddp_header(Bytes bytes, Terminate& terminate) {
  if (bytes.size() < segment_length_bytes) return WireError::truncated;
  const auto header = bytes.subspan(segment_length_bytes);
  // A length without the header is accepted: the terminate then counts as one without a DDP header.
  if (header.empty()) return header;
  const std::size_t header_bytes =
      ddp_is_tagged(header[0]) ? DdpTagged::header_bytes : DdpUntagged::header_bytes;
  if (header.size() < header_bytes) return WireError::truncated;

  terminate.ddp_segment_bytes = field::terminated_segment::segment_bytes.load(bytes.data());
  terminate.ddp_header_bytes = static_cast<std::uint8_t>(header_bytes);
  std::copy_n(header.begin(), header_bytes, terminate.ddp_header.begin());
  return header.subspan(header_bytes);
}

// Whether the RDMAP header, by the DDP header before it, can be that of a Read Request. The R bit
// may also announce the header of an Atomic Request (RFC 7306 §8), which is not kept.
bool may_be_read_request(const Terminate& terminate) {
  if (terminate.ddp_header_bytes == 0) return true;
  // It is in the same place in tagged and untagged headers.
  static_assert(field::ddp_tagged::rdmap_control.at == field::ddp_untagged::rdmap_control.at);
  const std::uint8_t control = field::ddp_tagged::rdmap_control.load(terminate.ddp_header.data());
  return rdmap_opcode(control) == RdmapOpcode::read_request;
}

}  // namespace

// RFC 5040 §4.8 gives the order: control, length of the segment, DDP header, RDMAP header. The
// length exists only together with the DDP header.
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
  // Some senders set the bit and send no header.
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
  namespace at = field::terminate;
  // The reserved bits are sent as zero, and the bits of HdrCt are set below for what really
  // follows.
  std::fill_n(out.begin(), fixed_bytes, std::byte{0});
  at::layer_and_type.store(out.data(),
                           static_cast<std::uint8_t>(code.layer << 4 | (code.type & 0x0F)));
  at::code.store(out.data(), code.code);
  std::byte& header_control = out[at::header_control.at];
  auto rest = out.subspan(fixed_bytes);
  if (ddp_header_bytes > 0) {
    // RFC 5040 §4.8: the length of the segment comes with its header, so M and D are set together.
    header_control |= length_valid_bit | ddp_header_bit;
    field::terminated_segment::segment_bytes.store(rest.data(), ddp_segment_bytes);
    std::copy_n(ddp_header.begin(), ddp_header_bytes, rest.begin() + segment_length_bytes);
    rest = rest.subspan(segment_length_bytes + ddp_header_bytes);
  }
  if (has_read_request) {
    header_control |= rdmap_header_bit;
    read_request.emit(rest);
  }
}

}  // namespace weft::wire
