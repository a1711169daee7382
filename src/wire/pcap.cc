#include "wire/pcap.h"

#include <concepts>

namespace weft::wire {

namespace field::pcap {
constexpr Field32 magic{0};
constexpr Field16 version_major{magic.end()};
constexpr Field16 version_minor{version_major.end()};
constexpr Field32 time_zone{version_minor.end()};
constexpr Field32 accuracy{time_zone.end()};
constexpr Field32 snap_bytes{accuracy.end()};
constexpr Field32 link_type{snap_bytes.end()};
static_assert(link_type.end() == PcapHeader::header_bytes);
}  // namespace field::pcap

namespace {

constexpr std::uint32_t magic_microseconds = 0xA1B2C3D4;
// The only difference of such a file is the unit of the fractions.
constexpr std::uint32_t magic_nanoseconds = 0xA1B23C4D;
constexpr std::uint16_t version_major = 2;
constexpr std::uint16_t version_minor = 4;

// The fields of this format have the byte order of the machine that wrote the file.
template <std::unsigned_integral T>
T load(Bytes header, Field<T> field, ByteOrder order) {
  const std::byte* at = header.data() + field.at;
  return order == ByteOrder::little ? load_le<T>(at) : load_be<T>(at);
}

template <std::unsigned_integral T>
void store(MutableBytes header, Field<T> field, T value, ByteOrder order) {
  std::byte* at = header.data() + field.at;
  order == ByteOrder::little ? store_le(at, value) : store_be(at, value);
}

}  // namespace

// The magic number shows the byte order: in the wrong order it is neither of the two.
Result<PcapHeader, WireError> PcapHeader::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  namespace at = field::pcap;
  PcapHeader header;
  for (const ByteOrder order : {ByteOrder::little, ByteOrder::big}) {
    const std::uint32_t magic = load(bytes, at::magic, order);
    if (magic != magic_microseconds && magic != magic_nanoseconds) continue;
    header.order = order;
    header.nanoseconds = magic == magic_nanoseconds;
    if (load(bytes, at::version_major, order) != version_major) return WireError::bad_version;
    header.snap_bytes = load(bytes, at::snap_bytes, order);
    // The upper half is about frame check sequences, which the lengths in the upper layers leave
    // out anyway.
    header.link_type = static_cast<std::uint16_t>(load(bytes, at::link_type, order));
    return header;
  }
  return WireError::bad_key;
}

void PcapHeader::emit(MutableBytes out) const {
  namespace at = field::pcap;
  store(out, at::magic, nanoseconds ? magic_nanoseconds : magic_microseconds, order);
  store(out, at::version_major, version_major, order);
  store(out, at::version_minor, version_minor, order);
  store(out, at::time_zone, std::uint32_t{0}, order);  // always UTC
  store(out, at::accuracy, std::uint32_t{0}, order);   // zero in all files
  store(out, at::snap_bytes, snap_bytes, order);
  store(out, at::link_type, std::uint32_t{link_type}, order);
}

void PcapRecord::emit(MutableBytes out, ByteOrder order) const {
  namespace at = field::pcap_record;
  store(out, at::seconds, seconds, order);
  store(out, at::fraction, fraction, order);
  store(out, at::captured_bytes, captured_bytes, order);
  store(out, at::original_bytes, original_bytes, order);
}

}  // namespace weft::wire
