// The markers of MPA. The first byte of the input selects the stream position. The rest is used
// twice: as a stream with markers, and as the ULPDU of an FPDU to put markers into.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "wire/markers.h"

namespace weft::fuzz {
namespace {

Bytes without_crc(Bytes fpdu) {
  return fpdu.first(fpdu.size() - wire::fpdu_crc_bytes);
}

// Inserts markers into an FPDU and removes them again.
void check_round_trip(std::uint64_t position, Bytes fpdu) {
  std::vector<std::byte> marked(wire::marked_bytes(position, fpdu.size()));
  const auto written = wire::insert_markers(position, fpdu, marked);
  if (!written) return require(marked.size() > 0xFFFF);  // beyond the reach of a pointer
  require(*written == marked.size());

  std::vector<std::byte> plain(fpdu.size());
  const auto stripped = wire::strip_markers(position, marked, plain);
  require(stripped.ok());
  require(stripped->stream_bytes == marked.size());
  require(stripped->plain_bytes == fpdu.size());
  require(stripped->crc_good);
  require(std::ranges::equal(without_crc(plain), without_crc(fpdu)));
}

void check_stream(std::uint64_t position, Bytes stream) {
  std::vector<std::byte> plain(wire::fpdu_bytes(wire::fpdu_max_ulpdu_bytes));
  const auto stripped = wire::strip_markers(position, stream, plain);
  if (!stripped) return;
  require(stripped->stream_bytes <= stream.size());
  require(stripped->stream_bytes == wire::marked_bytes(position, stripped->plain_bytes));
  check_round_trip(position, Bytes(plain).first(stripped->plain_bytes));
}

void check_ulpdu(std::uint64_t position, Bytes ulpdu) {
  ulpdu = ulpdu.first(std::min(ulpdu.size(), wire::fpdu_max_ulpdu_bytes));
  std::vector<std::byte> fpdu(wire::fpdu_bytes(ulpdu.size()));
  store_be(fpdu.data(), static_cast<std::uint16_t>(ulpdu.size()));
  std::ranges::copy(ulpdu, fpdu.begin() + wire::fpdu_length_bytes);
  check_round_trip(position, fpdu);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  if (size == 0) return 0;
  const std::uint64_t position = std::uint64_t{4} * data[0];
  const auto rest = fuzz::input_bytes(data, size).subspan(1);
  fuzz::check_stream(position, rest);
  fuzz::check_ulpdu(position, rest);
  return 0;
}
