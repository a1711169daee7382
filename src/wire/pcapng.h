// pcapng (draft-ietf-opsawg-pcapng): the blocks that Weft writes, and reads in either byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/error.h"

namespace weft::wire {

// Emitted blocks are little-endian.
enum class PcapngOrder : std::uint8_t { little, big };

// Values outside this list survive as values.
enum class PcapngType : std::uint32_t {
  interface = 1,
  old_packet = 2,  // "packet block", obsolete but still met
  simple_packet = 3,
  packet = 6,  // "enhanced packet block"
  section = 0x0A0D0D0A,
};

// Returns the byte order of a section, from the first 12 bytes of its section header block.
[[nodiscard]] Result<PcapngOrder, WireError> pcapng_section_order(Bytes bytes);

// Return the type and the size of the block that begins with `head`, which has 8 bytes or more. The
// size includes type and lengths; it fails with bad_length if a block cannot have that size.
[[nodiscard]] PcapngType pcapng_block_type(Bytes head, PcapngOrder order);
[[nodiscard]] Result<std::uint32_t, WireError> pcapng_block_bytes(Bytes head, PcapngOrder order);

// Any block: a view, valid as long as the bytes that it was parsed from.
struct PcapngBlock {
  static constexpr std::size_t frame_bytes = 12;  // type and both lengths

  PcapngType type = PcapngType::section;
  PcapngOrder order = PcapngOrder::little;
  Bytes body;

  [[nodiscard]] std::size_t size() const { return frame_bytes + body.size(); }
  // Fails with truncated if `bytes` ends before the block does.
  [[nodiscard]] static Result<PcapngBlock, WireError> parse(Bytes bytes, PcapngOrder order);
};

// Section header block.
struct PcapngSection {
  std::string_view application;  // borrowed from the bytes parsed, or from the caller of emit()

  [[nodiscard]] static Result<PcapngSection, WireError> parse(const PcapngBlock& block);
  [[nodiscard]] std::size_t size() const;
  void emit(MutableBytes out) const;
  bool operator==(const PcapngSection&) const = default;
};

// Interface description block.
struct PcapngInterface {
  static constexpr std::uint16_t link_ethernet = 1;
  static constexpr std::uint8_t resolution_nanoseconds = 9;

  std::uint16_t link_type = link_ethernet;
  std::uint32_t snap_bytes = 0;     // 0: no limit
  std::uint8_t resolution = 6;      // if_tsresol: 10^-n seconds, or 2^-n if the top bit is set
  std::string_view name;            // borrowed from the bytes parsed, or from the caller of emit()
  std::int64_t offset_seconds = 0;  // if_tsoffset: to be added to each timestamp; not emitted

  [[nodiscard]] static Result<PcapngInterface, WireError> parse(const PcapngBlock& block);
  [[nodiscard]] std::size_t size() const;
  void emit(MutableBytes out) const;
  bool operator==(const PcapngInterface&) const = default;
};

enum class PcapngDirection : std::uint8_t { unknown = 0, inbound = 1, outbound = 2 };

// Enhanced packet block: head, the bytes of the packet, tail. Head and tail are emitted apart, so
// that the bytes need not be copied.
struct PcapngPacket {
  static constexpr std::size_t head_bytes = 28;
  static constexpr std::size_t max_tail_bytes = 19;  // without a comment

  std::uint32_t interface_id = 0;
  std::uint64_t timestamp = 0;  // in units of the interface's resolution, since 1970
  std::uint32_t captured_bytes = 0;
  std::uint32_t original_bytes = 0;
  PcapngDirection direction = PcapngDirection::unknown;
  std::string_view comment{};  // borrowed from the caller of emit_tail(); at most 65535 bytes; not
                               // parsed

  // Parses packet and old_packet blocks.
  [[nodiscard]] static Result<PcapngPacket, WireError> parse(const PcapngBlock& block);
  // Returns the bytes of the packet; `block` is the one that *this was parsed from.
  [[nodiscard]] Bytes data(const PcapngBlock& block) const;

  [[nodiscard]] std::size_t tail_bytes() const;
  void emit_head(MutableBytes out) const;
  void emit_tail(MutableBytes out) const;
  bool operator==(const PcapngPacket&) const = default;
};

// Simple packet block: a packet of the first interface of the section, without a time.
struct PcapngSimplePacket {
  std::uint32_t original_bytes = 0;
  Bytes data;  // within the block; cut at the interface's `snap_bytes`

  [[nodiscard]] static Result<PcapngSimplePacket, WireError> parse(const PcapngBlock& block,
                                                                   std::uint32_t snap_bytes);
};

// Converts a timestamp in units of the resolution of the interface to nanoseconds since 1970.
[[nodiscard]] std::int64_t pcapng_nanoseconds(const PcapngInterface& interface,
                                              std::uint64_t timestamp);

}  // namespace weft::wire
