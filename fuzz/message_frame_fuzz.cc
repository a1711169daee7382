// The frames of the message protocol. The input is one frame with its payload.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "message/frame_wire.h"

namespace weft::fuzz {
namespace {

using message::detail::Frame;
using message::detail::Kind;

// Parts and pieces are used as they are to address memory: they must lie within the frame and add
// up.
void check_bounds(const Frame& frame, Bytes input) {
  std::size_t end = Frame::header_bytes;
  for (const auto& part : frame.parts) {
    require(part.offset >= end + Frame::part_header_bytes);
    require(part.offset % Frame::part_alignment == 0);
    require(part.offset <= input.size() && part.bytes <= input.size() - part.offset);
    end = part.offset + static_cast<std::size_t>(part.bytes);
  }
  require(frame.parts.size() <= Frame::max_parts);
  require(frame.pieces.size() <= Frame::max_pieces);
  std::uint64_t total = 0;
  for (const auto& piece : frame.pieces) total += piece.size_bytes();
  require(frame.kind != Kind::offer || total == frame.bytes);
}

// Reserved bytes and padding are written as zero, so only the values must come back.
void check_round_trip(const Frame& frame, Bytes input) {
  std::vector<std::byte> bytes(std::max(input.size(), Frame::largest_bytes));
  std::size_t size = frame.encode(bytes);
  require(size != 0 && size <= input.size());
  if (frame.kind == Kind::message) size += static_cast<std::size_t>(frame.bytes);
  const auto again = Frame::parse(Bytes(bytes).first(size));
  require(again.has_value());
  require(*again == frame);
  std::vector<std::byte> second(bytes.size());
  require(again->encode(second) == frame.encode(bytes));
  require(second == bytes);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft;
  const auto input = fuzz::input_bytes(data, size);
  if (const auto frame = message::detail::Frame::parse(input)) {
    fuzz::check_bounds(*frame, input);
    fuzz::check_round_trip(*frame, input);
  }
  return 0;
}
