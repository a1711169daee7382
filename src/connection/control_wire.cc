#include "connection/control_wire.h"

#include "base/byte_reader.h"
#include "base/byte_writer.h"
#include "base/crc32c.h"

namespace weft::connection::detail {
namespace {

constexpr std::size_t crc_offset = 28;  // the CRC covers what is before it
static_assert(crc_offset + sizeof(std::uint32_t) == ControlRecord::encoded_bytes);

}  // namespace

CountBytes count_to_bytes(std::uint64_t count) {
  CountBytes bytes;
  ByteWriter(bytes).be64(count);
  return bytes;
}

std::uint64_t count_from_bytes(const CountBytes& bytes) {
  return ByteReader(bytes).be64();
}

std::array<std::byte, ControlRecord::encoded_bytes> ControlRecord::to_bytes() const {
  std::array<std::byte, encoded_bytes> bytes;
  ByteWriter out(bytes);
  out.be32(number);
  out.be64(buffer.address());
  out.be64(buffer.size_bytes());
  out.be32(buffer.rkey());
  out.be32(tag);
  // RDMA Writes need not be placed in the order of their bytes, so the last byte alone does not
  // show that a record is whole.
  out.be32(crc32c(Bytes(bytes).first(crc_offset)));
  return bytes;
}

// The number is compared first: most calls poll a slot that has no new record, and need no CRC.
std::optional<ControlRecord> ControlRecord::parse(std::span<const std::byte, encoded_bytes> bytes,
                                                  std::uint32_t number) {
  ByteReader in(bytes);
  ControlRecord record;
  record.number = in.be32();
  if (record.number != number) return std::nullopt;
  const std::uint64_t address = in.be64();
  const std::uint64_t size = in.be64();
  const std::uint32_t rkey = in.be32();
  record.tag = in.be32();
  if (in.be32() != crc32c(bytes.first(crc_offset))) return std::nullopt;
  record.buffer = {address, size, rkey};
  return record;
}

}  // namespace weft::connection::detail
