#include "wire/hello.h"

#include <algorithm>
#include <array>

#include "base/byte_reader.h"
#include "base/byte_writer.h"

namespace weft::wire {
namespace {

constexpr std::array key{std::byte{'W'}, std::byte{'e'}, std::byte{'f'}, std::byte{'t'}};
constexpr std::size_t reserved_bytes = 8;  // at the end: zero, and ignored

}  // namespace

// A wrong key is reported even for short data: private data of another protocol is no hello.
Result<Hello, WireError> Hello::parse(Bytes data) {
  ByteReader in(data);
  const Bytes begin = in.bytes(key.size());
  if (!in.ok()) return WireError::truncated;
  if (!std::ranges::equal(begin, key)) return WireError::bad_key;
  Hello hello;
  hello.version = in.be16();
  // Unknown answers survive as values; the caller treats them as refusals.
  hello.answer = static_cast<HelloAnswer>(in.be16());
  hello.source_qpn = in.be32();
  hello.destination_qpn = in.be32();
  hello.send_psn = in.be32();
  hello.receive_psn = in.be32();
  hello.generation = in.be32();
  hello.capabilities = in.be32();
  hello.control_stag = in.be32();
  hello.hold_capacity_bytes = in.be32();
  // A later version may give these bytes a meaning; this one must accept them whatever they are.
  in.skip(reserved_bytes);
  if (!in.ok()) return WireError::truncated;
  return hello;
}

void Hello::emit(MutableBytes data) const {
  ByteWriter out(data.first(bytes));
  out.bytes(key);
  out.be16(version);
  out.be16(static_cast<std::uint16_t>(answer));
  out.be32(source_qpn);
  out.be32(destination_qpn);
  out.be32(send_psn);
  out.be32(receive_psn);
  out.be32(generation);
  out.be32(capabilities);
  out.be32(control_stag);
  out.be32(hold_capacity_bytes);
  out.zeros(reserved_bytes);
}

}  // namespace weft::wire
