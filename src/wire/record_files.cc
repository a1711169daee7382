#include "wire/record_files.h"

#include <algorithm>
#include <array>

#include "wire/field.h"
#include "wire/link.h"

namespace weft::wire {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;

namespace field_snoop {
inline constexpr Field32 version{8};
inline constexpr Field32 datalink{version.end()};
// Of a record:
inline constexpr Field32 original_bytes{0};
inline constexpr Field32 captured_bytes{original_bytes.end()};
inline constexpr Field32 record_bytes{captured_bytes.end()};
inline constexpr Field32 drops{record_bytes.end()};
inline constexpr Field32 seconds{drops.end()};
inline constexpr Field32 microseconds{seconds.end()};
constexpr std::size_t record_header_bytes = microseconds.end();
}  // namespace field_snoop

namespace field_erf {
// The time is a number of seconds, with 32 bits before the point and 32 behind it. It is the only
// field in little-endian order.
inline constexpr std::size_t time_at = 0;
inline constexpr Field8 type{8};
inline constexpr Field16 record_bytes{10};
}  // namespace field_erf

// The types of Endace's documentation; the highest bit announces extension headers.
constexpr std::uint8_t erf_type_mask = 0x7F;
constexpr std::uint8_t first_erf_type = 1;
constexpr std::uint8_t last_erf_type = 28;
// A file with this number of good records at its beginning is ERF.
constexpr int enough_records = 10;

}  // namespace

Result<SnoopHeader, WireError> SnoopHeader::parse(Bytes bytes) {
  constexpr std::array magic{std::byte{'s'}, std::byte{'n'}, std::byte{'o'}, std::byte{'o'},
                             std::byte{'p'}, std::byte{0},   std::byte{0},   std::byte{0}};
  if (bytes.size() < header_bytes) return WireError::truncated;
  if (!std::ranges::equal(bytes.first(magic.size()), magic)) return WireError::bad_key;
  constexpr std::uint32_t version = 2;
  if (field_snoop::version.load(bytes.data()) != version) return WireError::bad_version;
  return SnoopHeader{field_snoop::datalink.load(bytes.data())};
}

// RFC 1761 §3: the record is padded to four bytes.
Result<FileRecord, WireError> FileRecord::parse_snoop(Bytes bytes) {
  namespace at = field_snoop;
  if (bytes.size() < at::record_header_bytes) return WireError::truncated;
  const std::byte* const header = bytes.data();
  FileRecord record;
  record.packet_at = at::record_header_bytes;
  record.captured_bytes = at::captured_bytes.load(header);
  record.record_bytes = at::record_bytes.load(header);
  if (record.record_bytes < at::record_header_bytes ||
      record.record_bytes - at::record_header_bytes < record.captured_bytes) {
    return WireError::bad_length;
  }
  record.original_bytes =
      std::max<std::size_t>(at::original_bytes.load(header), record.captured_bytes);
  record.time_ns = std::int64_t{at::seconds.load(header)} * second_ns +
                   std::int64_t{at::microseconds.load(header)} * 1'000;
  return record;
}

Result<FileRecord, WireError> FileRecord::parse_erf(Bytes bytes) {
  if (bytes.size() < ErfHeader::min_header_bytes) return WireError::truncated;
  const std::uint16_t whole = field_erf::record_bytes.load(bytes.data());
  if (whole < ErfHeader::min_header_bytes) return WireError::bad_length;
  const auto time = load_le<std::uint64_t>(bytes.data() + field_erf::time_at);
  constexpr std::uint64_t fraction_mask = 0xFFFF'FFFF;
  constexpr std::uint64_t half = 0x8000'0000;
  FileRecord record;
  record.time_ns = static_cast<std::int64_t>(time >> 32) * second_ns +
                   static_cast<std::int64_t>(((time & fraction_mask) * second_ns + half) >> 32);
  record.record_bytes = record.captured_bytes = record.original_bytes = whole;
  // Extension headers may be cut; the packet is then as long as its record.
  if (const auto header =
          ErfHeader::parse(bytes.first(std::min<std::size_t>(bytes.size(), whole)))) {
    record.original_bytes =
        std::max<std::size_t>(whole, header->size_bytes + std::size_t{header->wire_bytes});
  }
  return record;
}

bool begins_like_erf(Bytes bytes) {
  std::int64_t before_ns = 1;
  for (int good = 0; good < enough_records; ++good) {
    const auto record = FileRecord::parse_erf(bytes);
    // A part of a record after good ones is cut, or not in `bytes`.
    if (!record) return good > 0 && record.error() == WireError::truncated;
    const std::uint8_t type = field_erf::type.load(bytes.data()) & erf_type_mask;
    if (type < first_erf_type || type > last_erf_type || record->time_ns < before_ns) return false;
    if (record->record_bytes > bytes.size()) return good > 0;
    before_ns = record->time_ns;
    bytes = bytes.subspan(record->record_bytes);
  }
  return true;
}

}  // namespace weft::wire
