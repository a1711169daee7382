// What a peer writes into memory and sends on a stream: rows of the table of mapped buffers, and
// the words of messages. The input is a row, of which the first four bytes are a word too.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "stream/ring_map_wire.h"
#include "stream/word_wire.h"

namespace weft::fuzz {
namespace {

using namespace stream::detail;

void check_word(std::span<const std::byte, word_bytes> bytes) {
  const std::uint32_t word = word_from_bytes(bytes);
  require(std::ranges::equal(word_to_bytes(word), bytes));
  if (is_update(word)) return require(encode(update_of(word)) == word);
  require(encode(kind_of(word), value_of(word)) == word);
}

void check_row(Bytes bytes) {
  constexpr std::size_t reserved_bytes = 4;  // at the end, ignored
  const MapRow row = MapRow::from_bytes(bytes);
  const auto again = row.to_bytes();
  require(MapRow::from_bytes(again) == row);
  const std::size_t used = row_bytes - reserved_bytes;
  require(std::ranges::equal(Bytes(again).first(used), bytes.first(used)));
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const auto input = fuzz::input_bytes(data, size);
  if (size >= fuzz::word_bytes) fuzz::check_word(input.first<fuzz::word_bytes>());
  if (size >= fuzz::row_bytes) fuzz::check_row(input.first(fuzz::row_bytes));
  return 0;
}
