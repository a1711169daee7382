#include "connection/greeting_wire.h"

#include "base/byte_reader.h"
#include "base/byte_writer.h"
#include "connection/control_wire.h"

namespace weft::connection::detail {
namespace {

constexpr std::uint32_t magic = 0x57454643;  // "WEFC"
constexpr std::uint8_t version = 1;
constexpr std::uint8_t has_buffer = 1;

}  // namespace

std::vector<std::byte> ControlGreeting::to_bytes() const {
  const std::size_t buffer_bytes = buffer ? verbs::RemoteSlice::encoded_bytes : 0;
  std::vector<std::byte> bytes(fixed_bytes + buffer_bytes + private_data.size());
  ByteWriter out(bytes);
  out.be32(magic);
  out.u8(version);
  out.u8(buffer ? has_buffer : 0);
  out.be16(slots);
  out.be64(control.address());
  out.be32(control.rkey());
  out.u8(static_cast<std::uint8_t>(private_data.size()));
  if (buffer) out.bytes(buffer->to_bytes());
  out.bytes(private_data);
  return bytes;
}

// Anything that is not exactly this format is private data of a program that uses plain rdma_cm,
// and no error.
std::optional<ControlGreeting> ControlGreeting::parse(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const bool known = in.be32() == magic && in.u8() == version;
  const std::uint8_t flags = in.u8();
  ControlGreeting greeting;
  greeting.slots = in.be16();
  const std::uint64_t address = in.be64();
  const std::uint32_t rkey = in.be32();
  const std::size_t user_bytes = in.u8();
  if ((flags & has_buffer) != 0) {
    greeting.buffer = verbs::RemoteSlice::from_bytes(in.bytes(verbs::RemoteSlice::encoded_bytes));
  }
  const Bytes user = in.bytes(user_bytes);
  // Bytes behind the private data are padding of InfiniBand's fixed messages.
  if (!in.ok() || !known || greeting.slots == 0) return std::nullopt;
  greeting.control = {address, ControlLayout::bytes(greeting.slots), rkey};
  greeting.private_data.assign(user.begin(), user.end());
  return greeting;
}

}  // namespace weft::connection::detail
