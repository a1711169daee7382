// Capture files of Microsoft Network Monitor, versions 1.x and 2.x ("Network Monitor Capture File
// Format" of the help of Network Monitor 3.4). All integers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

// One packet of such a file.
struct NetmonRecord {
  std::int64_t time_ns = 0;
  std::uint16_t network = 0;       // see NetmonHeader
  std::size_t record_bytes = 0;    // of the whole record
  std::size_t packet_at = 0;       // where the packet begins in the record
  std::size_t captured_bytes = 0;  // of the packet
  std::size_t original_bytes = 0;

  bool operator==(const NetmonRecord&) const = default;
};

// The header of the file. The packets follow it without gaps, and after them a table of their
// places, which is not needed to read them in order.
struct NetmonHeader {
  static constexpr std::size_t header_bytes = 128;
  static constexpr std::size_t record_header_bytes = 16;  // at most

  std::uint8_t major = 2;
  std::uint8_t minor = 0;
  std::uint16_t network = 1;
  std::int64_t start_ns = 0;  // the local time of the machine that captured, as if it were UTC
  std::uint64_t table_at = 0;

  // Fails with bad_key if the file is of another format, with bad_version if its version is not
  // known.
  [[nodiscard]] static Result<NetmonHeader, WireError> parse(Bytes bytes);
  // Returns the size of the record that begins with `bytes`; fails with truncated if its header
  // is not there as a whole.
  [[nodiscard]] Result<std::size_t, WireError> record_bytes(Bytes bytes) const;
  // Reads a record that is there as a whole.
  [[nodiscard]] NetmonRecord record(Bytes bytes) const;
  // Returns the link type of pcap files for a network; `unknown_link` if there is none.
  [[nodiscard]] static std::uint16_t link_type_of(std::uint16_t network);

  static constexpr std::uint16_t unknown_link = 0xFFFF;

 private:
  [[nodiscard]] std::size_t trailer_bytes() const;
};

}  // namespace weft::wire
