#include "stream/ring_map_wire.h"

#include "base/byte_reader.h"
#include "base/byte_writer.h"

namespace weft::stream::detail {

// Big-endian; the bytes behind the fields are zero.
std::array<std::byte, row_bytes> MapRow::to_bytes() const {
  std::array<std::byte, row_bytes> row{};
  ByteWriter out(row);
  out.be64(offset);
  out.be64(memory.size_bytes());
  out.be64(memory.address());
  out.be32(memory.rkey());
  return row;
}

MapRow MapRow::from_bytes(std::span<const std::byte> row) {
  ByteReader in(row);
  const std::uint64_t offset = in.be64();
  const std::uint64_t size = in.be64();
  const std::uint64_t address = in.be64();
  const std::uint32_t rkey = in.be32();
  return {offset, {address, size, rkey}};
}

}  // namespace weft::stream::detail
