#include "wire/netmon.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "wire/link.h"

namespace weft::wire {
namespace {

constexpr std::int64_t millisecond_ns = 1'000'000;
constexpr std::int64_t microsecond_ns = 1'000;

// Places in the header of the file.
constexpr std::size_t minor_at = 4;
constexpr std::size_t major_at = 5;
constexpr std::size_t network_at = 6;
constexpr std::size_t start_at = 8;  // SYSTEMTIME: eight numbers of 16 bits
constexpr std::size_t table_place_at = 24;

// Records of version 1: milliseconds, original length, captured length.
constexpr std::size_t old_record_header_bytes = 8;
// Trailers of version 2, from minor version 1, 2 and 3 on.
constexpr std::size_t network_bytes = 2;
constexpr std::size_t process_bytes = 4;
constexpr std::size_t utc_bytes = 9;  // a FILETIME, and an index of a time zone

template <std::unsigned_integral T>
T le(Bytes bytes, std::size_t at) {
  return load_le<T>(bytes.data() + at);
}

// SYSTEMTIME: year, month, day of the week, day, hour, minute, second, millisecond.
std::int64_t system_time_ns(Bytes bytes) {
  std::array<unsigned, 8> part{};
  for (std::size_t i = 0; i < part.size(); ++i) part[i] = le<std::uint16_t>(bytes, 2 * i);
  namespace chrono = std::chrono;
  const chrono::year_month_day date{chrono::year(static_cast<int>(part[0])), chrono::month(part[1]),
                                    chrono::day(part[3])};
  if (!date.ok()) return 0;
  const auto time = chrono::sys_days(date) + chrono::hours(part[4]) + chrono::minutes(part[5]) +
                    chrono::seconds(part[6]) + chrono::milliseconds(part[7]);
  return chrono::duration_cast<chrono::nanoseconds>(time.time_since_epoch()).count();
}

// FILETIME: units of 100 ns since 1601. Returns 0 if it is before 1970, or beyond what fits.
std::int64_t file_time_ns(std::uint64_t units) {
  constexpr std::uint64_t units_to_1970 = 116'444'736'000'000'000;
  constexpr std::uint64_t unit_ns = 100;
  constexpr std::uint64_t most_units = 92'000'000'000'000'000;
  if (units < units_to_1970 || units - units_to_1970 > most_units) return 0;
  return static_cast<std::int64_t>((units - units_to_1970) * unit_ns);
}

}  // namespace

Result<NetmonHeader, WireError> NetmonHeader::parse(Bytes bytes) {
  constexpr std::string_view magics[] = {"RTSS", "GMBU"};
  if (bytes.size() < header_bytes) return WireError::truncated;
  const std::string_view magic(reinterpret_cast<const char*>(bytes.data()), magics[0].size());
  const auto known = std::ranges::find(magics, magic);
  if (known == std::end(magics)) return WireError::bad_key;
  NetmonHeader header{.major = le<std::uint8_t>(bytes, major_at),
                      .minor = le<std::uint8_t>(bytes, minor_at),
                      .network = le<std::uint16_t>(bytes, network_at),
                      .start_ns = system_time_ns(bytes.subspan(start_at)),
                      .table_at = le<std::uint32_t>(bytes, table_place_at)};
  constexpr std::uint8_t last_minor = 3;
  const auto major = static_cast<std::uint8_t>(1 + (known - std::begin(magics)));
  if (header.major != major || (major == 2 && header.minor > last_minor)) {
    return WireError::bad_version;
  }
  return header;
}

std::size_t NetmonHeader::trailer_bytes() const {
  if (major < 2) return 0;
  return (minor >= 1 ? network_bytes : 0) + (minor >= 2 ? process_bytes : 0) +
         (minor >= 3 ? utc_bytes : 0);
}

Result<std::size_t, WireError> NetmonHeader::record_bytes(Bytes bytes) const {
  if (major < 2) {
    if (bytes.size() < old_record_header_bytes) return WireError::truncated;
    return old_record_header_bytes + le<std::uint16_t>(bytes, 6);
  }
  if (bytes.size() < record_header_bytes) return WireError::truncated;
  return record_header_bytes + std::size_t{le<std::uint32_t>(bytes, 12)} + trailer_bytes();
}

NetmonRecord NetmonHeader::record(Bytes bytes) const {
  NetmonRecord out{.network = network, .record_bytes = bytes.size()};
  if (major < 2) {
    out.time_ns = start_ns + le<std::uint32_t>(bytes, 0) * millisecond_ns;
    out.original_bytes = le<std::uint16_t>(bytes, 4);
    out.packet_at = old_record_header_bytes;
    out.captured_bytes = bytes.size() - out.packet_at;
    return out;
  }
  // A hundred years; more is damage, and would overflow.
  constexpr std::uint64_t most_us = 3'200'000'000'000'000;
  const std::uint64_t since_us = std::min(le<std::uint64_t>(bytes, 0), most_us);
  out.time_ns = start_ns + static_cast<std::int64_t>(since_us) * microsecond_ns;
  out.original_bytes = le<std::uint32_t>(bytes, 8);
  out.packet_at = record_header_bytes;
  out.captured_bytes = bytes.size() - record_header_bytes - trailer_bytes();
  const Bytes trailer = bytes.subspan(bytes.size() - trailer_bytes());
  if (minor >= 1) out.network = le<std::uint16_t>(trailer, 0);
  if (minor >= 3) {
    const std::int64_t utc_ns =
        file_time_ns(le<std::uint64_t>(trailer, network_bytes + process_bytes));
    if (utc_ns != 0) out.time_ns = utc_ns;
  }
  return out;
}

std::uint16_t NetmonHeader::link_type_of(std::uint16_t network) {
  constexpr std::uint16_t ethernet_network = 1;
  // Link types of pcap have this prefix.
  constexpr std::uint16_t pcap_prefix = 0xE000;
  constexpr std::uint16_t prefix_mask = 0xF000;
  if (network == ethernet_network) return link_type::ethernet;
  if ((network & prefix_mask) == pcap_prefix) {
    return static_cast<std::uint16_t>(network & ~prefix_mask);
  }
  return unknown_link;
}

}  // namespace weft::wire
