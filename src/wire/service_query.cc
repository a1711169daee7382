#include "wire/service_query.h"

#include <algorithm>
#include <array>

#include "base/byte_reader.h"
#include "base/byte_writer.h"

namespace weft::wire {
namespace {

// The last byte is the version.
constexpr std::array key{std::byte{'W'}, std::byte{'e'}, std::byte{'f'}, std::byte{'t'},
                         std::byte{'U'}, std::byte{'D'}, std::byte{0},   std::byte{1}};
constexpr std::size_t reserved_bytes = 1;  // behind the length of the private data: zero, ignored

}  // namespace

// A short datagram is reported as truncated whatever its key is: it cannot be a query.
Result<ServiceQuery, WireError> ServiceQuery::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return WireError::truncated;
  ByteReader in(bytes);
  if (!std::ranges::equal(in.bytes(key.size()), key)) return WireError::bad_key;
  ServiceQuery query;
  query.kind = static_cast<Kind>(in.u8());
  query.status = static_cast<Status>(in.u8());
  const std::size_t private_bytes = in.u8();
  in.skip(reserved_bytes);
  query.identification = in.be32();
  query.queue_pair = in.be32();
  query.queue_key = in.be32();
  query.private_data = in.bytes(private_bytes);
  if (!in.ok() || private_bytes > max_private_data_bytes) return WireError::truncated;
  return query;
}

void ServiceQuery::emit(MutableBytes bytes) const {
  ByteWriter out(bytes.first(size()));
  out.bytes(key);
  out.u8(static_cast<std::uint8_t>(kind));
  out.u8(static_cast<std::uint8_t>(status));
  // One byte suffices: rdma_cm limits the private data of the UDP port space to less than that.
  out.u8(static_cast<std::uint8_t>(private_data.size()));
  out.zeros(reserved_bytes);
  out.be32(identification);
  out.be32(queue_pair);
  out.be32(queue_key);
  out.bytes(private_data);
}

}  // namespace weft::wire
