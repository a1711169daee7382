#include "wire/pcap.h"

#include <concepts>

namespace weft::wire {

namespace {

constexpr std::uint32_t magic_microseconds = 0xA1B2C3D4;
constexpr std::uint32_t magic_nanoseconds = 0xA1B23C4D;
constexpr std::uint16_t version_major = 2;
constexpr std::uint16_t version_minor = 4;

template <std::unsigned_integral T>
T load(const std::byte* at, ByteOrder order) {
  return order == ByteOrder::little ? load_le<T>(at) : load_be<T>(at);
}

template <std::unsigned_integral T>
void store(std::byte* at, T value, ByteOrder order) {
  order == ByteOrder::little ? store_le(at, value) : store_be(at, value);
}

}  // namespace

Result<PcapHeader, WireError> PcapHeader::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  PcapHeader header;
  for (const ByteOrder order : {ByteOrder::little, ByteOrder::big}) {
    const auto magic = load<std::uint32_t>(bytes.data(), order);
    if (magic != magic_microseconds && magic != magic_nanoseconds) continue;
    header.order = order;
    header.nanoseconds = magic == magic_nanoseconds;
    if (load<std::uint16_t>(&bytes[4], order) != version_major) return WireError::bad_version;
    header.snap_bytes = load<std::uint32_t>(&bytes[16], order);
    // The upper half tells of frame check sequences, which lengths of upper layers cut off anyway.
    header.link_type = static_cast<std::uint16_t>(load<std::uint32_t>(&bytes[20], order));
    return header;
  }
  return WireError::bad_key;
}

void PcapHeader::emit(MutableBytes out) const {
  store(&out[0], nanoseconds ? magic_nanoseconds : magic_microseconds, order);
  store(&out[4], version_major, order);
  store(&out[6], version_minor, order);
  store(&out[8], std::uint32_t{0}, order);   // time zone: always UTC
  store(&out[12], std::uint32_t{0}, order);  // accuracy: nobody sets it
  store(&out[16], snap_bytes, order);
  store(&out[20], std::uint32_t{link_type}, order);
}

void PcapRecord::emit(MutableBytes out, ByteOrder order) const {
  store(&out[0], seconds, order);
  store(&out[4], fraction, order);
  store(&out[8], captured_bytes, order);
  store(&out[12], original_bytes, order);
}

}  // namespace weft::wire
