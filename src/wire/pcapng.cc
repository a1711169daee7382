#include "wire/pcapng.h"

#include <algorithm>
#include <cstring>

namespace weft::wire {

namespace {

constexpr std::uint32_t byte_order_magic = 0x1A2B3C4D;
constexpr std::uint64_t section_length_unknown = ~std::uint64_t{0};
constexpr std::size_t section_fixed_bytes = 16;
constexpr std::size_t interface_fixed_bytes = 8;
constexpr std::size_t packet_fixed_bytes = 20;

namespace option {
constexpr std::uint16_t end = 0;
constexpr std::uint16_t section_application = 4;   // shb_userappl
constexpr std::uint16_t interface_name = 2;        // if_name
constexpr std::uint16_t interface_resolution = 9;  // if_tsresol
constexpr std::uint16_t interface_offset = 14;     // if_tsoffset
constexpr std::uint16_t packet_flags = 2;          // epb_flags
constexpr std::size_t header_bytes = 4;
}  // namespace option

template <std::unsigned_integral T>
T load(const std::byte* at, PcapngOrder order) {
  return order == PcapngOrder::little ? load_le<T>(at) : load_be<T>(at);
}

// (a * b) >> shift, of which the lower 64 bits: not every compiler has integers of 128 bits. `b` is
// at most 2^32.
std::uint64_t shifted_product(std::uint64_t a, std::uint64_t b, unsigned shift) {
  constexpr std::uint64_t lower_half = 0xFFFFFFFF;
  const std::uint64_t low = (a & lower_half) * b;
  const std::uint64_t high = (a >> 32) * b + (low >> 32);  // the product from its bit 32 on
  if (shift < 32) return high << (32 - shift) | (low & lower_half) >> shift;
  return shift < 96 ? high >> (shift - 32) : 0;
}

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + 3) / 4 * 4;
}

std::string_view text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Calls `visit(code, value)` for each option; false where they run over their end.
template <typename Visit>
bool for_each_option(Bytes bytes, PcapngOrder order, Visit visit) {
  while (bytes.size() >= option::header_bytes) {
    const auto code = load<std::uint16_t>(bytes.data(), order);
    const auto value_bytes = load<std::uint16_t>(bytes.data() + 2, order);
    if (code == option::end) return true;
    bytes = bytes.subspan(option::header_bytes);
    if (padded(value_bytes) > bytes.size()) return false;
    visit(code, bytes.first(value_bytes));
    bytes = bytes.subspan(padded(value_bytes));
  }
  return bytes.empty();
}

// Writes a block piece by piece.
class Writer {
 public:
  explicit Writer(MutableBytes out) : at_(out.data()) {}

  template <std::unsigned_integral T>
  Writer& put(T value) {
    store_le(at_, value);
    at_ += sizeof value;
    return *this;
  }
  Writer& zeros(std::size_t bytes) {
    at_ = std::fill_n(at_, bytes, std::byte{0});
    return *this;
  }
  Writer& begin(PcapngType type, std::size_t block_bytes) {
    return put(static_cast<std::uint32_t>(type)).put(static_cast<std::uint32_t>(block_bytes));
  }
  Writer& string_option(std::uint16_t code, std::string_view value) {
    if (value.empty()) return *this;
    put(code).put(static_cast<std::uint16_t>(value.size()));
    std::memcpy(at_, value.data(), value.size());
    at_ += value.size();
    return zeros(padded(value.size()) - value.size());
  }
  void end(std::size_t block_bytes) {
    put(option::end).put(std::uint16_t{0}).put(static_cast<std::uint32_t>(block_bytes));
  }

 private:
  std::byte* at_;
};

std::size_t string_option_bytes(std::string_view value) {
  return value.empty() ? 0 : option::header_bytes + padded(value.size());
}

}  // namespace

Result<PcapngOrder, WireError> pcapng_section_order(Bytes bytes) {
  if (bytes.size() < 12) return WireError::truncated;
  const auto type = load_le<std::uint32_t>(bytes.data());  // the same in both orders
  if (type != static_cast<std::uint32_t>(PcapngType::section)) return WireError::bad_key;
  const std::byte* magic = bytes.data() + 8;
  if (load_le<std::uint32_t>(magic) == byte_order_magic) return PcapngOrder::little;
  if (load_be<std::uint32_t>(magic) == byte_order_magic) return PcapngOrder::big;
  return WireError::bad_key;
}

PcapngType pcapng_block_type(Bytes head, PcapngOrder order) {
  return PcapngType{load<std::uint32_t>(head.data(), order)};
}

Result<std::uint32_t, WireError> pcapng_block_bytes(Bytes head, PcapngOrder order) {
  const auto total = load<std::uint32_t>(head.data() + 4, order);
  if (total < PcapngBlock::frame_bytes || total % 4 != 0) return WireError::bad_length;
  return total;
}

Result<PcapngBlock, WireError> PcapngBlock::parse(Bytes bytes, PcapngOrder order) {
  if (bytes.size() < 8) return WireError::truncated;
  const auto length = pcapng_block_bytes(bytes, order);
  if (!length) return length.error();
  const std::uint32_t total = *length;
  if (bytes.size() < total) return WireError::truncated;
  if (load<std::uint32_t>(bytes.data() + total - 4, order) != total) return WireError::bad_length;
  return PcapngBlock{PcapngType{load<std::uint32_t>(bytes.data(), order)}, order,
                     bytes.subspan(8, total - frame_bytes)};
}

Result<PcapngSection, WireError> PcapngSection::parse(const PcapngBlock& block) {
  if (block.body.size() < section_fixed_bytes) return WireError::truncated;
  if (load<std::uint16_t>(block.body.data() + 4, block.order) != 1) return WireError::bad_version;
  PcapngSection section;
  const bool ok = for_each_option(block.body.subspan(section_fixed_bytes), block.order,
                                  [&](std::uint16_t code, Bytes value) {
                                    if (code != option::section_application) return;
                                    section.application = text(value);
                                  });
  if (!ok) return WireError::bad_length;
  return section;
}

std::size_t PcapngSection::size() const {
  return PcapngBlock::frame_bytes + section_fixed_bytes + string_option_bytes(application) +
         option::header_bytes;
}

void PcapngSection::emit(MutableBytes out) const {
  Writer writer(out);
  writer.begin(PcapngType::section, size()).put(byte_order_magic);
  writer.put(std::uint16_t{1}).put(std::uint16_t{0}).put(section_length_unknown);
  writer.string_option(option::section_application, application).end(size());
}

Result<PcapngInterface, WireError> PcapngInterface::parse(const PcapngBlock& block) {
  if (block.body.size() < interface_fixed_bytes) return WireError::truncated;
  PcapngInterface interface;
  interface.link_type = load<std::uint16_t>(block.body.data(), block.order);
  interface.snap_bytes = load<std::uint32_t>(block.body.data() + 4, block.order);
  const bool ok = for_each_option(
      block.body.subspan(interface_fixed_bytes), block.order, [&](std::uint16_t code, Bytes value) {
        if (code == option::interface_name) interface.name = text(value);
        if (code == option::interface_resolution && value.size() == 1) {
          interface.resolution = load_be<std::uint8_t>(value.data());
        }
        if (code == option::interface_offset && value.size() == 8) {
          interface.offset_seconds =
              static_cast<std::int64_t>(load<std::uint64_t>(value.data(), block.order));
        }
      });
  if (!ok) return WireError::bad_length;
  return interface;
}

std::size_t PcapngInterface::size() const {
  return PcapngBlock::frame_bytes + interface_fixed_bytes + string_option_bytes(name) +
         option::header_bytes + padded(sizeof resolution) + option::header_bytes;
}

void PcapngInterface::emit(MutableBytes out) const {
  Writer writer(out);
  writer.begin(PcapngType::interface, size());
  writer.put(link_type).put(std::uint16_t{0}).put(snap_bytes);
  writer.string_option(option::interface_name, name);
  writer.put(option::interface_resolution).put(std::uint16_t{sizeof resolution});
  writer.put(resolution).zeros(3).end(size());
}

Result<PcapngPacket, WireError> PcapngPacket::parse(const PcapngBlock& block) {
  if (block.body.size() < packet_fixed_bytes) return WireError::truncated;
  const std::byte* at = block.body.data();
  PcapngPacket packet;
  // The obsolete block has a 16-bit interface and a count of drops in the place of the interface.
  packet.interface_id = block.type == PcapngType::old_packet ? load<std::uint16_t>(at, block.order)
                                                             : load<std::uint32_t>(at, block.order);
  packet.timestamp = std::uint64_t{load<std::uint32_t>(at + 4, block.order)} << 32 |
                     load<std::uint32_t>(at + 8, block.order);
  packet.captured_bytes = load<std::uint32_t>(at + 12, block.order);
  packet.original_bytes = load<std::uint32_t>(at + 16, block.order);
  const Bytes rest = block.body.subspan(packet_fixed_bytes);
  if (packet.captured_bytes > rest.size()) return WireError::bad_length;
  if (padded(packet.captured_bytes) > rest.size()) return WireError::bad_length;
  const bool ok = for_each_option(
      rest.subspan(padded(packet.captured_bytes)), block.order,
      [&](std::uint16_t code, Bytes value) {
        if (code != option::packet_flags || value.size() != 4) return;
        packet.direction = PcapngDirection(load<std::uint32_t>(value.data(), block.order) & 3);
      });
  if (!ok) return WireError::bad_length;
  return packet;
}

Bytes PcapngPacket::data(const PcapngBlock& block) const {
  return block.body.subspan(packet_fixed_bytes, captured_bytes);
}

std::size_t PcapngPacket::tail_bytes() const {
  return padded(captured_bytes) - captured_bytes + option::header_bytes + sizeof(std::uint32_t) +
         option::header_bytes + sizeof(std::uint32_t);
}

void PcapngPacket::emit_head(MutableBytes out) const {
  Writer writer(out);
  writer.begin(PcapngType::packet, head_bytes + captured_bytes + tail_bytes()).put(interface_id);
  writer.put(static_cast<std::uint32_t>(timestamp >> 32))
      .put(static_cast<std::uint32_t>(timestamp));
  writer.put(captured_bytes).put(original_bytes);
}

void PcapngPacket::emit_tail(MutableBytes out) const {
  Writer writer(out);
  writer.zeros(padded(captured_bytes) - captured_bytes);
  writer.put(option::packet_flags).put(std::uint16_t{sizeof(std::uint32_t)});
  writer.put(static_cast<std::uint32_t>(direction));
  writer.end(head_bytes + captured_bytes + tail_bytes());
}

Result<PcapngSimplePacket, WireError> PcapngSimplePacket::parse(const PcapngBlock& block,
                                                                std::uint32_t snap_bytes) {
  if (block.body.size() < sizeof(std::uint32_t)) return WireError::truncated;
  PcapngSimplePacket packet;
  packet.original_bytes = load<std::uint32_t>(block.body.data(), block.order);
  const Bytes rest = block.body.subspan(sizeof(std::uint32_t));
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
  // What does not fit into 64 bits is not a time: it wraps, without harm.
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
