#include "wire/pcapng.h"

#include <algorithm>
#include <span>

#include "base/byte_writer.h"
#include "wire/field.h"

namespace weft::wire {

// Every block: type, length, body, and the length again. The section header block determines the
// byte order of the numbers; its own type is the same in both orders.
namespace field::pcapng_block {
constexpr Field32 type{0};
constexpr Field32 total_bytes{type.end()};
constexpr std::size_t body_at = total_bytes.end();
constexpr std::size_t trailer_bytes = sizeof(std::uint32_t);
static_assert(body_at + trailer_bytes == PcapngBlock::frame_bytes);
}  // namespace field::pcapng_block

// The rest are the bodies, up to their options.
namespace field::pcapng_section {
constexpr Field32 byte_order_magic{0};
constexpr Field16 version_major{byte_order_magic.end()};
constexpr Field16 version_minor{version_major.end()};
constexpr Field64 section_bytes{version_minor.end()};
constexpr std::size_t fixed_bytes = section_bytes.end();
}  // namespace field::pcapng_section

namespace field::pcapng_interface {
constexpr Field16 link_type{0};
constexpr Field16 reserved{link_type.end()};
constexpr Field32 snap_bytes{reserved.end()};
constexpr std::size_t fixed_bytes = snap_bytes.end();
}  // namespace field::pcapng_interface

namespace field::pcapng_packet {
constexpr Field32 interface_id{0};
constexpr Field16 old_interface_id{0};  // in the obsolete block; a count of drops follows
constexpr Field32 timestamp_high{interface_id.end()};
constexpr Field32 timestamp_low{timestamp_high.end()};
constexpr Field32 captured_bytes{timestamp_low.end()};
constexpr Field32 original_bytes{captured_bytes.end()};
constexpr std::size_t fixed_bytes = original_bytes.end();
static_assert(pcapng_block::body_at + fixed_bytes == PcapngPacket::head_bytes);
}  // namespace field::pcapng_packet

namespace field::pcapng_simple_packet {
constexpr Field32 original_bytes{0};
constexpr std::size_t fixed_bytes = original_bytes.end();
}  // namespace field::pcapng_simple_packet

namespace field::pcapng_option {
constexpr Field16 code{0};
constexpr Field16 value_bytes{code.end()};
constexpr std::size_t header_bytes = value_bytes.end();
}  // namespace field::pcapng_option

namespace {

// In a section of the other byte order this number reads reversed.
constexpr std::uint32_t byte_order_magic = 0x1A2B3C4D;
constexpr std::uint32_t direction_mask = 3;  // of epb_flags
// The minor version is written and not compared: a section that differs only in it is readable.
constexpr std::uint16_t version_major = 1;
constexpr std::uint16_t version_minor = 0;
// A length of -1 means that the section may be read only block by block; a writer that does not
// know its end uses it.
constexpr std::uint64_t section_length_unknown = ~std::uint64_t{0};

namespace option {
constexpr std::uint16_t end = 0;
constexpr std::uint16_t comment = 1;               // opt_comment, of any block
constexpr std::uint16_t section_application = 4;   // shb_userappl
constexpr std::uint16_t interface_name = 2;        // if_name
constexpr std::uint16_t interface_resolution = 9;  // if_tsresol
constexpr std::uint16_t interface_offset = 14;     // if_tsoffset
constexpr std::uint16_t packet_flags = 2;          // epb_flags
constexpr std::size_t header_bytes = field::pcapng_option::header_bytes;
}  // namespace option

template <std::unsigned_integral T>
T load(Bytes bytes, Field<T> field, PcapngOrder order) {
  const std::byte* at = bytes.data() + field.at;
  return order == PcapngOrder::little ? load_le<T>(at) : load_be<T>(at);
}

// Returns the lower 64 bits of (a * b) >> shift; `b` is at most 2^32. There are compilers without
// integers of 128 bits.
std::uint64_t shifted_product(std::uint64_t a, std::uint64_t b, unsigned shift) {
  constexpr std::uint64_t lower_half = 0xFFFFFFFF;
  const std::uint64_t low = (a & lower_half) * b;
  const std::uint64_t high = (a >> 32) * b + (low >> 32);  // the product from its bit 32 on
  if (shift < 32) return high << (32 - shift) | (low & lower_half) >> shift;
  return shift < 96 ? high >> (shift - 32) : 0;
}

// Blocks, options and packet data are aligned to four bytes; lengths do not count the pad.
constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + 3) / 4 * 4;
}

std::string_view text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Calls `visit(code, value)` for each option. Returns false if one goes beyond the end.
template <typename Visit>
bool for_each_option(Bytes bytes, PcapngOrder order, Visit visit) {
  while (bytes.size() >= option::header_bytes) {
    const std::uint16_t code = load(bytes, field::pcapng_option::code, order);
    const std::uint16_t value_bytes = load(bytes, field::pcapng_option::value_bytes, order);
    // The option that ends the list may be left out where the block ends.
    if (code == option::end) return true;
    bytes = bytes.subspan(option::header_bytes);
    if (padded(value_bytes) > bytes.size()) return false;
    visit(code, bytes.first(value_bytes));
    bytes = bytes.subspan(padded(value_bytes));
  }
  return bytes.empty();
}

// Writes a block piece by piece. The caller provides the size() of the block.
// Blocks are always written in little-endian order, which the magic number of the section declares.
class BlockWriter {
 public:
  explicit BlockWriter(MutableBytes out) : out_(out) {}

  BlockWriter& put(std::uint8_t value) { return out_.u8(value), *this; }
  BlockWriter& put(std::uint16_t value) { return out_.le16(value), *this; }
  BlockWriter& put(std::uint32_t value) { return out_.le32(value), *this; }
  BlockWriter& put(std::uint64_t value) { return out_.le64(value), *this; }
  BlockWriter& zeros(std::size_t bytes) { return out_.zeros(bytes), *this; }
  BlockWriter& begin(PcapngType type, std::size_t block_bytes) {
    return put(static_cast<std::uint32_t>(type)).put(static_cast<std::uint32_t>(block_bytes));
  }
  BlockWriter& string_option(std::uint16_t code, std::string_view value) {
    if (value.empty()) return *this;
    put(code).put(static_cast<std::uint16_t>(value.size()));
    out_.bytes(std::as_bytes(std::span(value)));
    return zeros(padded(value.size()) - value.size());
  }
  void end(std::size_t block_bytes) {
    put(option::end).put(std::uint16_t{0}).put(static_cast<std::uint32_t>(block_bytes));
  }

 private:
  ByteWriter out_;
};

// This is the size of what BlockWriter::string_option() writes: the length of a block is in front
// of its options, so it has to be known before they are written.
std::size_t string_option_bytes(std::string_view value) {
  return value.empty() ? 0 : option::header_bytes + padded(value.size());
}

}  // namespace

Result<PcapngOrder, WireError> pcapng_section_order(Bytes bytes) {
  namespace at = field::pcapng_section;
  constexpr std::size_t body_at = field::pcapng_block::body_at;
  if (bytes.size() < body_at + at::byte_order_magic.end()) return WireError::truncated;
  const Bytes body = bytes.subspan(body_at);
  for (const PcapngOrder order : {PcapngOrder::little, PcapngOrder::big}) {
    // Its type is a palindrome of bytes, so it can be read before the order is known.
    if (pcapng_block_type(bytes, order) != PcapngType::section) return WireError::bad_key;
    if (load(body, at::byte_order_magic, order) == byte_order_magic) return order;
  }
  return WireError::bad_key;
}

PcapngType pcapng_block_type(Bytes head, PcapngOrder order) {
  return PcapngType{load(head, field::pcapng_block::type, order)};
}

// Blocks are padded to four bytes, so any other length is damage. A length below that of the frame
// is refused as well: a reader that steps by it would not leave the block.
Result<std::uint32_t, WireError> pcapng_block_bytes(Bytes head, PcapngOrder order) {
  const std::uint32_t total = load(head, field::pcapng_block::total_bytes, order);
  if (total < PcapngBlock::frame_bytes || total % 4 != 0) return WireError::bad_length;
  return total;
}

Result<PcapngBlock, WireError> PcapngBlock::parse(Bytes bytes, PcapngOrder order) {
  namespace at = field::pcapng_block;
  if (bytes.size() < at::body_at) return WireError::truncated;
  const auto length = pcapng_block_bytes(bytes, order);
  if (!length) return length.error();
  const std::uint32_t total = *length;
  if (bytes.size() < total) return WireError::truncated;
  // The length is at both ends, for reading backwards; a difference shows a damaged file.
  const Field32 trailer{total - at::trailer_bytes};
  if (load(bytes, trailer, order) != total) return WireError::bad_length;
  return PcapngBlock{pcapng_block_type(bytes, order), order,
                     bytes.subspan(at::body_at, total - frame_bytes)};
}

Result<PcapngSection, WireError> PcapngSection::parse(const PcapngBlock& block) {
  namespace at = field::pcapng_section;
  if (block.body.size() < at::fixed_bytes) return WireError::truncated;
  if (load(block.body, at::version_major, block.order) != version_major) {
    return WireError::bad_version;
  }
  PcapngSection section;
  const bool ok = for_each_option(block.body.subspan(at::fixed_bytes), block.order,
                                  [&](std::uint16_t code, Bytes value) {
                                    if (code != option::section_application) return;
                                    section.application = text(value);
                                  });
  if (!ok) return WireError::bad_length;
  return section;
}

std::size_t PcapngSection::size() const {
  return PcapngBlock::frame_bytes + field::pcapng_section::fixed_bytes +
         string_option_bytes(application) + option::header_bytes;
}

void PcapngSection::emit(MutableBytes out) const {
  BlockWriter writer(out);
  writer.begin(PcapngType::section, size()).put(byte_order_magic);
  writer.put(version_major).put(version_minor).put(section_length_unknown);
  writer.string_option(option::section_application, application).end(size());
}

// Unknown options are skipped, as the format demands. A known option of another length than the
// format defines is ignored and leaves the default: the packets of the interface are still
// readable.
Result<PcapngInterface, WireError> PcapngInterface::parse(const PcapngBlock& block) {
  namespace at = field::pcapng_interface;
  if (block.body.size() < at::fixed_bytes) return WireError::truncated;
  PcapngInterface interface;
  interface.link_type = load(block.body, at::link_type, block.order);
  interface.snap_bytes = load(block.body, at::snap_bytes, block.order);
  const bool ok = for_each_option(
      block.body.subspan(at::fixed_bytes), block.order, [&](std::uint16_t code, Bytes value) {
        if (code == option::interface_name) interface.name = text(value);
        if (code == option::interface_resolution && value.size() == sizeof(std::uint8_t)) {
          interface.resolution = load(value, Field8{}, block.order);
        }
        if (code == option::interface_offset && value.size() == sizeof(std::int64_t)) {
          interface.offset_seconds = static_cast<std::int64_t>(load(value, Field64{}, block.order));
        }
      });
  if (!ok) return WireError::bad_length;
  return interface;
}

std::size_t PcapngInterface::size() const {
  return PcapngBlock::frame_bytes + field::pcapng_interface::fixed_bytes +
         string_option_bytes(name) + option::header_bytes + padded(sizeof resolution) +
         option::header_bytes;
}

void PcapngInterface::emit(MutableBytes out) const {
  BlockWriter writer(out);
  writer.begin(PcapngType::interface, size());
  writer.put(link_type).put(std::uint16_t{0}).put(snap_bytes);
  writer.string_option(option::interface_name, name);
  writer.put(option::interface_resolution).put(std::uint16_t{sizeof resolution});
  writer.put(resolution).zeros(3).end(size());
}

Result<PcapngPacket, WireError> PcapngPacket::parse(const PcapngBlock& block) {
  namespace at = field::pcapng_packet;
  if (block.body.size() < at::fixed_bytes) return WireError::truncated;
  const auto word = [&](Field32 field) { return load(block.body, field, block.order); };
  PcapngPacket packet;
  packet.interface_id = block.type == PcapngType::old_packet
                            ? load(block.body, at::old_interface_id, block.order)
                            : word(at::interface_id);
  // The upper half comes first in sections of either byte order.
  packet.timestamp = std::uint64_t{word(at::timestamp_high)} << 32 | word(at::timestamp_low);
  packet.captured_bytes = word(at::captured_bytes);
  packet.original_bytes = word(at::original_bytes);
  const Bytes rest = block.body.subspan(at::fixed_bytes);
  // Two checks, because padding the length may wrap around where a size has 32 bits.
  if (packet.captured_bytes > rest.size()) return WireError::bad_length;
  if (padded(packet.captured_bytes) > rest.size()) return WireError::bad_length;
  const bool ok = for_each_option(
      rest.subspan(padded(packet.captured_bytes)), block.order,
      [&](std::uint16_t code, Bytes value) {
        if (code != option::packet_flags || value.size() != sizeof(std::uint32_t)) return;
        packet.direction = PcapngDirection(load(value, Field32{}, block.order) & direction_mask);
      });
  if (!ok) return WireError::bad_length;
  return packet;
}

// PcapngPacket::parse() has compared the captured length with this block.
Bytes PcapngPacket::data(const PcapngBlock& block) const {
  return block.body.subspan(field::pcapng_packet::fixed_bytes, captured_bytes);
}

// The packet's data lies between head and tail and is written by the caller, so it need not be
// copied.
std::size_t PcapngPacket::tail_bytes() const {
  return padded(captured_bytes) - captured_bytes + string_option_bytes(comment) +
         option::header_bytes + sizeof(std::uint32_t) + option::header_bytes +
         sizeof(std::uint32_t);
}

void PcapngPacket::emit_head(MutableBytes out) const {
  BlockWriter writer(out);
  writer.begin(PcapngType::packet, head_bytes + captured_bytes + tail_bytes()).put(interface_id);
  writer.put(static_cast<std::uint32_t>(timestamp >> 32))
      .put(static_cast<std::uint32_t>(timestamp));
  writer.put(captured_bytes).put(original_bytes);
}

void PcapngPacket::emit_tail(MutableBytes out) const {
  BlockWriter writer(out);
  writer.zeros(padded(captured_bytes) - captured_bytes);
  writer.string_option(option::comment, comment);
  writer.put(option::packet_flags).put(std::uint16_t{sizeof(std::uint32_t)});
  writer.put(static_cast<std::uint32_t>(direction));
  writer.end(head_bytes + captured_bytes + tail_bytes());
}

Result<PcapngSimplePacket, WireError> PcapngSimplePacket::parse(const PcapngBlock& block,
                                                                std::uint32_t snap_bytes) {
  namespace at = field::pcapng_simple_packet;
  if (block.body.size() < at::fixed_bytes) return WireError::truncated;
  PcapngSimplePacket packet;
  packet.original_bytes = load(block.body, at::original_bytes, block.order);
  const Bytes rest = block.body.subspan(at::fixed_bytes);
  // A simple packet has no length of its own: the limit of its interface cuts it.
  const std::uint32_t captured =
      snap_bytes == 0 ? packet.original_bytes : std::min(packet.original_bytes, snap_bytes);
  packet.data = rest.first(std::min<std::size_t>(captured, rest.size()));
  return packet;
}

std::int64_t pcapng_nanoseconds(const PcapngInterface& interface, std::uint64_t timestamp) {
  constexpr std::uint8_t power_of_two = 0x80;
  constexpr unsigned nanoseconds_digits = 9;
  constexpr std::uint64_t second_ns = 1'000'000'000;
  const unsigned exponent = interface.resolution & ~power_of_two & 0xFFU;
  // A value that does not fit into 64 bits is not a valid time: it wraps around, without harm.
  std::uint64_t ns = 0;
  if ((interface.resolution & power_of_two) != 0) {
    const std::uint64_t seconds = exponent < 64 ? timestamp >> exponent : 0;
    const std::uint64_t rest = exponent < 64 ? timestamp - (seconds << exponent) : timestamp;
    ns = seconds * second_ns + shifted_product(rest, second_ns, exponent);
  } else {
    ns = timestamp;
    for (unsigned digit = exponent; digit < nanoseconds_digits; ++digit) ns *= 10;
    for (unsigned digit = nanoseconds_digits; digit < exponent && ns != 0; ++digit) ns /= 10;
  }
  return static_cast<std::int64_t>(ns + static_cast<std::uint64_t>(interface.offset_seconds) *
                                            second_ns);
}

}  // namespace weft::wire
