// RemoteSlice as 20 bytes, in network order: address (8), length (8), rkey (4).
#include "base/byte_reader.h"
#include "base/byte_writer.h"
#include "weft/verbs/slice.hpp"

namespace weft::verbs {

std::array<std::byte, RemoteSlice::encoded_bytes> RemoteSlice::to_bytes() const {
  std::array<std::byte, encoded_bytes> bytes;
  ByteWriter out(bytes);
  out.be64(address_);
  out.be64(bytes_);
  out.be32(rkey_);
  return bytes;
}

std::optional<RemoteSlice> RemoteSlice::from_bytes(std::span<const std::byte> bytes) {
  // A longer text is refused as well: the caller has mistaken what the peer sent.
  if (bytes.size() != encoded_bytes) return std::nullopt;
  ByteReader in(bytes);
  const std::uint64_t address = in.be64();
  const std::uint64_t size = in.be64();
  const std::uint32_t rkey = in.be32();
  return RemoteSlice(address, size, rkey);
}

}  // namespace weft::verbs
