// The records that a peer writes into the control region. The input is a record; its CRC is put
// right for a second look, because a mutation would not get past it.
#include <algorithm>

#include "base/crc32c.h"
#include "connection/control_wire.h"
#include "fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

using connection::detail::ControlRecord;
using RecordBytes = std::array<std::byte, ControlRecord::encoded_bytes>;

bool check(const RecordBytes& bytes) {
  const auto number = load_be<std::uint32_t>(bytes.data());
  require(!ControlRecord::parse(bytes, number + 1));
  const auto record = ControlRecord::parse(bytes, number);
  if (!record) return false;
  require(record->number == number);
  require(record->to_bytes() == bytes);
  return true;
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  fuzz::RecordBytes bytes;
  if (size < bytes.size()) return 0;
  std::ranges::copy(fuzz::input_bytes(data, bytes.size()), bytes.begin());
  (void)fuzz::check(bytes);
  constexpr std::size_t covered = 28;
  store_be(bytes.data() + covered, crc32c(Bytes(bytes).first(covered)));
  fuzz::require(fuzz::check(bytes));
  return 0;
}
