#include "capture/findings/credit_wire.h"

#include <algorithm>
#include <array>

#include "base/byte_reader.h"

namespace weft::capture {

// Private data that is shorter is read as if zeros followed it, so that no field needs a check.
CreditGreeting CreditGreeting::of(Bytes private_data) {
  constexpr std::size_t fixed_bytes = 24;  // of either protocol, up to the size of the ring
  std::array<std::byte, fixed_bytes> bytes{};
  std::ranges::copy(private_data.first(std::min(private_data.size(), fixed_bytes)), bytes.begin());
  ByteReader in(bytes);
  CreditGreeting greeting;
  greeting.magic = in.be32();
  greeting.version = in.u8();
  in.skip(sizeof(std::uint8_t));  // flags of a message connection, type of a stream's greeting
  greeting.receives = in.be16();
  in.skip(sizeof(std::uint64_t) + sizeof(std::uint32_t));  // address and rkey of a stream's ring
  greeting.ring_bytes = in.be32();
  return greeting;
}

CreditFrame CreditFrame::of(Bytes frame) {
  ByteReader in(frame);
  CreditFrame start;
  start.kind = in.u8();
  in.skip(sizeof(std::uint8_t));  // flags
  start.granted = in.be16();
  return start;
}

std::uint32_t stream_word_of(Bytes message) {
  return ByteReader(message).be32();
}

}  // namespace weft::capture
