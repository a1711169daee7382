#include "stream/greeting_wire.h"

#include "base/byte_reader.h"
#include "base/byte_writer.h"
#include "stream/ring_map_wire.h"

namespace weft::stream::detail {
namespace {

constexpr std::uint32_t magic = 0x57454653;  // "WEFS"
constexpr std::uint8_t version = 1;
constexpr std::uint8_t max_part_log2 = 31;

// Whether the sizes of a request or an acceptance can be used: the ring and its table must not go
// beyond the end of the address space, and an acceptance must name one variant.
bool plausible(const StreamGreeting& greeting) {
  const std::uint8_t known = variant_immediate | variant_write_and_send;
  const std::uint64_t region = region_bytes(greeting.ring_bytes, greeting.rows);
  const bool one_variant = (greeting.variants & (greeting.variants - 1)) == 0;
  return greeting.receives >= min_queue && greeting.ring_bytes >= 1 &&
         greeting.ring_bytes <= max_buffer_bytes && greeting.ring_address + region > region &&
         greeting.part_log2 <= max_part_log2 && (greeting.variants & known) != 0 &&
         (greeting.type == GreetingType::request || one_variant);
}

}  // namespace

const char* to_string(Reason reason) {
  switch (reason) {
    case Reason::by_user:
      return "its program has rejected it";
    case Reason::version:
      return "it speaks another version or another protocol";
    case Reason::malformed:
      return "the greeting has sizes that cannot be";
    case Reason::no_variant:
      return "there is no variant that both sides can";
    case Reason::unable:
      return "it lacks the resources";
  }
  return "for a reason unknown here";
}

StreamGreeting StreamGreeting::refusal(Reason reason, std::span<const std::byte> private_data) {
  StreamGreeting greeting;
  greeting.type = GreetingType::refusal;
  // A refusal needs no number of receives, so the field has the reason.
  greeting.receives = static_cast<std::uint16_t>(reason);
  greeting.private_data.assign(private_data.begin(), private_data.end());
  return greeting;
}

// The format is in docs/stream-protocol.md; numbers are big-endian, as in the RFCs.
std::vector<std::byte> StreamGreeting::to_bytes() const {
  std::vector<std::byte> bytes(fixed_bytes + private_data.size());
  ByteWriter out(bytes);
  out.be32(magic);
  out.u8(version);
  out.u8(static_cast<std::uint8_t>(type));
  out.be16(receives);
  out.be64(ring_address);
  out.be32(ring_rkey);
  out.be32(ring_bytes);
  out.u8(static_cast<std::uint8_t>(variants | (shares_memory ? shares_memory_bit : 0)));
  out.u8(rows);
  out.u8(part_log2);
  out.u8(static_cast<std::uint8_t>(private_data.size()));
  out.bytes(private_data);
  return bytes;
}

// The version is judged before the length: another version may have a shorter greeting, and its
// sender should learn that the version is the reason.
std::variant<StreamGreeting, Reason> StreamGreeting::parse(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const bool known = in.be32() == magic && in.u8() == version;
  if (!in.ok() || !known) return Reason::version;
  StreamGreeting greeting;
  const std::uint8_t type = in.u8();
  greeting.type = static_cast<GreetingType>(type);
  greeting.receives = in.be16();
  greeting.ring_address = in.be64();
  greeting.ring_rkey = in.be32();
  greeting.ring_bytes = in.be32();
  const std::uint8_t variants = in.u8();
  greeting.variants = variants & static_cast<std::uint8_t>(~shares_memory_bit);
  greeting.shares_memory = (variants & shares_memory_bit) != 0;
  greeting.rows = in.u8();
  greeting.part_log2 = in.u8();
  const Bytes user = in.bytes(in.u8());
  if (!in.ok() || type < 1 || type > 3) return Reason::malformed;
  if (greeting.type != GreetingType::refusal && !plausible(greeting)) return Reason::malformed;
  greeting.private_data.assign(user.begin(), user.end());
  return greeting;
}

}  // namespace weft::stream::detail
