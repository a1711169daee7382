#include "message/greeting_wire.h"

#include "base/byte_reader.h"
#include "base/byte_writer.h"

namespace weft::message::detail {
namespace {

constexpr std::uint8_t joined_flag = 1;
constexpr std::uint32_t magic = 0x5745464D;  // "WEFM"

// The private data of the application comes last, with its length in the byte before it.
void write_private_data(ByteWriter& out, const std::vector<std::byte>& data) {
  out.u8(static_cast<std::uint8_t>(data.size()));
  out.bytes(data);
}

std::vector<std::byte> read_private_data(ByteReader& in) {
  const Bytes data = in.bytes(in.u8());
  return {data.begin(), data.end()};
}

}  // namespace

std::vector<std::byte> MessageGreeting::to_bytes() const {
  std::vector<std::byte> bytes(fixed_bytes + private_data.size());
  ByteWriter out(bytes);
  out.be32(magic);
  out.u8(protocol_version);
  out.u8(terms.joined ? joined_flag : 0);
  out.be16(terms.credits);
  out.be32(terms.eager_bytes);
  out.be64(terms.max_message_bytes);
  write_private_data(out, private_data);
  return bytes;
}

// The version is judged before the length: another version may have a shorter greeting, and its
// sender should learn that the version is the reason.
ParsedGreeting MessageGreeting::parse(Bytes bytes) {
  ByteReader in(bytes);
  const bool known = in.be32() == magic;
  const std::uint8_t version = in.u8();
  if (!in.ok() || !known) return {std::nullopt, Reason::malformed};
  if (version != protocol_version) return {std::nullopt, Reason::version};
  MessageGreeting greeting;
  greeting.terms.joined = (in.u8() & joined_flag) != 0;
  greeting.terms.credits = in.be16();
  greeting.terms.eager_bytes = in.be32();
  greeting.terms.max_message_bytes = in.be64();
  greeting.private_data = read_private_data(in);
  // Without a credit nothing could ever be sent.
  if (!in.ok() || greeting.terms.credits == 0) return {std::nullopt, Reason::malformed};
  return {std::move(greeting), Reason::none};
}

std::vector<std::byte> Rejection::to_bytes() const {
  std::vector<std::byte> bytes(fixed_bytes + private_data.size());
  ByteWriter out(bytes);
  out.be32(magic);
  out.u8(version);
  out.u8(static_cast<std::uint8_t>(reason));
  out.be32(limit);
  write_private_data(out, private_data);
  return bytes;
}

Rejection Rejection::parse(Bytes bytes) {
  // rdma_cm itself rejects where no program listens, without private data.
  if (bytes.size() < fixed_bytes) return {};
  ByteReader in(bytes);
  Rejection rejection;
  const bool known = in.be32() == magic;
  rejection.version = in.u8();
  const std::uint8_t reason = in.u8();
  rejection.reason = static_cast<Reason>(reason);
  rejection.limit = in.be32();
  rejection.private_data = read_private_data(in);
  if (!known || reason == 0 || reason > static_cast<std::uint8_t>(Reason::application)) return {};
  return rejection;
}

}  // namespace weft::message::detail
