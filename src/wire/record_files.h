// Capture files that are a sequence of records, other than pcap: snoop (RFC 1761), and the native
// files of Endace's cards (ERF).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

// One packet in such a file.
struct FileRecord {
  std::int64_t time_ns = 0;
  std::size_t record_bytes = 0;    // of the whole record
  std::size_t packet_at = 0;       // where the packet begins in the record
  std::size_t captured_bytes = 0;  // of the packet
  std::size_t original_bytes = 0;

  // Reads the header of a record. Fails with truncated if `bytes` ends before, and with
  // bad_length if the lengths contradict one another.
  [[nodiscard]] static Result<FileRecord, WireError> parse_snoop(Bytes bytes);
  // The ERF header is a part of the packet, as it is in a pcap file with the link type ERF.
  [[nodiscard]] static Result<FileRecord, WireError> parse_erf(Bytes bytes);
  bool operator==(const FileRecord&) const = default;
};

struct SnoopHeader {
  static constexpr std::size_t header_bytes = 16;

  std::uint32_t datalink = 0;  // 0 and 4 are Ethernet

  // Fails with bad_key if the file is of another format, with bad_version if it is not version 2.
  [[nodiscard]] static Result<SnoopHeader, WireError> parse(Bytes bytes);
  [[nodiscard]] bool is_ethernet() const { return datalink == 0 || datalink == 4; }
};

// Returns whether a file begins with records of ERF, which have no magic number: `bytes` are its
// first ones. Each record in them must be one that a card writes, not earlier than the one before.
[[nodiscard]] bool begins_like_erf(Bytes bytes);

}  // namespace weft::wire
