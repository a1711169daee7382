#include "wire/tcp.h"

#include <algorithm>

#include "base/byte_writer.h"
#include "wire/field.h"

namespace weft::wire {

namespace field::tcp {
constexpr Field16 source_port{0};
constexpr Field16 destination_port{source_port.end()};
constexpr Field32 sequence{destination_port.end()};
constexpr Field32 acknowledgement{sequence.end()};
constexpr Field8 data_offset{acknowledgement.end()};  // in its upper half, in words of four bytes
constexpr Field8 flags{data_offset.end()};
constexpr Field16 window{flags.end()};
constexpr Field16 checksum{window.end()};
constexpr Field16 urgent{checksum.end()};
static_assert(urgent.end() == TcpHeader::min_header_bytes);
}  // namespace field::tcp

// An option other than "end" and "no operation" begins with these bytes. Its length includes them.
namespace field::tcp_option {
constexpr Field8 kind{0};
constexpr Field8 length_bytes{kind.end()};
constexpr std::size_t header_bytes = length_bytes.end();
constexpr Field16 mss_bytes{header_bytes};
constexpr Field8 window_scale{header_bytes};
}  // namespace field::tcp_option

namespace at = field::tcp;

namespace {

constexpr std::byte option_end{0};
constexpr std::byte option_nop{1};
constexpr std::uint8_t option_mss = 2;
constexpr std::uint8_t option_window_scale = 3;
constexpr std::uint8_t mss_bytes_total = field::tcp_option::mss_bytes.end();
constexpr std::uint8_t window_scale_bytes_total = field::tcp_option::window_scale.end();
// An MSS takes four bytes. A window scale takes three, and all senders put a no-operation before
// it.
constexpr std::size_t padded_option_bytes = 4;

// `option` has the length that is written in it. Returns false if its kind has another length.
// Options of all other kinds are accepted and not kept.
bool parse_option(Bytes option, TcpHeader& header) {
  namespace at = field::tcp_option;
  const std::uint8_t kind = at::kind.load(option.data());
  if (kind == option_mss) {
    if (option.size() != mss_bytes_total) return false;
    header.mss_bytes = at::mss_bytes.load(option.data());
  } else if (kind == option_window_scale) {
    if (option.size() != window_scale_bytes_total) return false;
    // RFC 7323 §2.2. It counts only where both sides have sent it, which the flow decides.
    header.window_scale = at::window_scale.load(option.data());
  }
  return true;
}

bool parse_options(Bytes options, TcpHeader& header) {
  while (!options.empty() && options[0] != option_end) {
    // The two kinds of one byte (RFC 9293 §3.1) have no length.
    if (options[0] == option_nop) {
      options = options.subspan(1);
      continue;
    }
    if (options.size() < field::tcp_option::header_bytes) return false;
    const std::size_t bytes = field::tcp_option::length_bytes.load(options.data());
    // A length of 0 or 1 would never end the loop.
    if (bytes < field::tcp_option::header_bytes || bytes > options.size()) return false;
    if (!parse_option(options.first(bytes), header)) return false;
    options = options.subspan(bytes);
  }
  return true;
}

// The two options that are kept, as emit() writes them; all others count as other_options_bytes.
std::size_t known_options_bytes(const TcpHeader& header) {
  return (header.mss_bytes ? padded_option_bytes : 0) +
         (header.window_scale ? padded_option_bytes : 0);
}

}  // namespace

std::size_t TcpHeader::size() const {
  return min_header_bytes + known_options_bytes(*this) + other_options_bytes;
}

Result<TcpHeader, WireError> TcpHeader::parse(Bytes bytes) {
  if (bytes.size() < min_header_bytes) return WireError::truncated;
  const std::byte* from = bytes.data();
  // RFC 9293 §3.1: the offset counts words of four bytes, so that it is the length of the header.
  const std::size_t header_bytes = (at::data_offset.load(from) >> 4) * 4;
  if (header_bytes < min_header_bytes) return WireError::bad_length;
  if (bytes.size() < header_bytes) return WireError::truncated;

  TcpHeader header;
  header.source_port = at::source_port.load(from);
  header.destination_port = at::destination_port.load(from);
  header.sequence = at::sequence.load(from);
  header.acknowledgement = at::acknowledgement.load(from);
  header.flags = at::flags.load(from);
  header.window = at::window.load(from);
  header.checksum = at::checksum.load(from);
  header.urgent = at::urgent.load(from);
  const Bytes options = bytes.subspan(min_header_bytes, header_bytes - min_header_bytes);
  if (!parse_options(options, header)) return WireError::bad_length;
  // Not negative: the known options, of four and three bytes, need two words at least.
  header.other_options_bytes =
      static_cast<std::uint8_t>(options.size() - known_options_bytes(header));
  return header;
}

void TcpHeader::emit(MutableBytes out) const {
  const MutableBytes header = out.first(size());
  std::byte* to = header.data();
  at::source_port.store(to, source_port);
  at::destination_port.store(to, destination_port);
  at::sequence.store(to, sequence);
  at::acknowledgement.store(to, acknowledgement);
  at::data_offset.store(to, static_cast<std::uint8_t>(header.size() / 4 << 4));
  at::flags.store(to, flags);
  at::window.store(to, window);
  at::checksum.store(to, checksum);
  at::urgent.store(to, urgent);
  ByteWriter options(header.subspan(min_header_bytes));
  if (mss_bytes) {
    options.u8(option_mss);
    options.u8(mss_bytes_total);
    options.be16(*mss_bytes);
  }
  if (window_scale) {
    options.u8(std::to_integer<std::uint8_t>(option_nop));
    options.u8(option_window_scale);
    options.u8(window_scale_bytes_total);
    options.u8(*window_scale);
  }
  // Options that are not kept become no-operations, so that the header has its size again.
  std::fill_n(to + min_header_bytes + options.position(), other_options_bytes, option_nop);
}

// Unlike in UDP, a checksum of zero has no other meaning, and is stored as it is.
void store_tcp_checksum(MutableBytes header, std::uint16_t checksum) {
  at::checksum.store(header.data(), checksum);
}

}  // namespace weft::wire
