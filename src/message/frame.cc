#include "message/frame.h"

#include <algorithm>

#include "base/size.h"

namespace weft::message::detail {
namespace {

constexpr std::uint8_t confirm_flag = 1;
constexpr std::uint8_t answer_flag = 2;

bool has_type(Kind kind) {
  return kind == Kind::message || kind == Kind::offer;
}

constexpr std::uint32_t part_confirm_flag = std::uint32_t{1} << 31;

std::size_t aligned(std::size_t at) {
  return (at + Frame::part_alignment - 1) / Frame::part_alignment * Frame::part_alignment;
}

// Where the header of the next part begins, behind these.
std::size_t next_part(const std::vector<Part>& parts) {
  return parts.empty() ? Frame::header_bytes
                       : aligned(parts.back().offset + to_size(parts.back().bytes));
}

bool parse_parts(Bytes bytes, std::vector<Part>& parts) {
  std::size_t at = Frame::header_bytes;
  while (at < bytes.size()) {
    if (bytes.size() - at < Frame::part_header_bytes) return false;
    if (parts.size() == Frame::max_parts) return false;
    const auto length = load_be<std::uint32_t>(&bytes[at + 4]);
    const Part part{.type = load_be<std::uint32_t>(&bytes[at]),
                    .tag = load_be<std::uint64_t>(&bytes[at + 8]),
                    .confirm = (length & part_confirm_flag) != 0,
                    .bytes = length & ~part_confirm_flag,
                    .offset = at + Frame::part_header_bytes};
    if (part.bytes > bytes.size() - part.offset) return false;
    parts.push_back(part);
    at = next_part(parts);
  }
  return !parts.empty();
}

// What is between the parts is zero: it was something else's memory.
std::size_t encode_parts(const std::vector<Part>& parts, MutableBytes into) {
  std::size_t at = Frame::header_bytes;
  for (const auto& part : parts) {
    const std::size_t header = part.offset - Frame::part_header_bytes;
    std::ranges::fill(into.subspan(at, header - at), std::byte{0});
    store_be(&into[header], part.type);
    store_be(&into[header + 4],
             static_cast<std::uint32_t>(part.bytes) | (part.confirm ? part_confirm_flag : 0));
    store_be(&into[header + 8], part.tag);
    at = part.offset + to_size(part.bytes);
  }
  return at;
}

bool parse_pieces(Bytes bytes, Frame& frame) {
  if (bytes.size() < Frame::offer_bytes) return false;
  frame.bytes = load_be<std::uint64_t>(&bytes[32]);
  const auto count = load_be<std::uint32_t>(&bytes[40]);
  if (count == 0 || count > Frame::max_pieces) return false;
  constexpr std::size_t each = verbs::RemoteSlice::encoded_bytes;
  if (bytes.size() < Frame::offer_bytes + count * each) return false;
  std::uint64_t left = frame.bytes;
  for (std::size_t i = 0; i < count; ++i) {
    const auto piece =
        verbs::RemoteSlice::from_bytes(bytes.subspan(Frame::offer_bytes + i * each, each));
    if (!piece || piece->size_bytes() == 0 || piece->size_bytes() > left) return false;
    left -= piece->size_bytes();
    frame.pieces.push_back(*piece);
  }
  return left == 0;
}

}  // namespace

bool Frame::join(Part part, std::size_t limit) {
  part.offset = next_part(parts) + part_header_bytes;
  if (parts.size() == max_parts || part.offset > limit || part.bytes > limit - part.offset) {
    return false;
  }
  parts.push_back(part);
  return true;
}

std::size_t Frame::encode(MutableBytes into) const {
  store_be(&into[0], static_cast<std::uint8_t>(kind));
  store_be(&into[1],
           static_cast<std::uint8_t>((confirm ? confirm_flag : 0) | (answer ? answer_flag : 0)));
  store_be(&into[2], credits);
  store_be(&into[4], delivered);
  store_be(&into[8], fetched);
  store_be(&into[12], updates);
  if (kind == Kind::joined) return encode_parts(parts, into);
  if (!has_type(kind)) return header_bytes;
  store_be(&into[16], type);
  store_be(&into[20], std::uint32_t{0});
  store_be(&into[24], tag);
  if (kind == Kind::message) return payload_offset;
  store_be(&into[32], bytes);
  store_be(&into[40], static_cast<std::uint32_t>(pieces.size()));
  std::size_t at = offer_bytes;
  for (const auto& piece : pieces) {
    std::ranges::copy(piece.to_bytes(), into.begin() + static_cast<std::ptrdiff_t>(at));
    at += verbs::RemoteSlice::encoded_bytes;
  }
  return at;
}

std::optional<Frame> Frame::parse(Bytes bytes) {
  if (bytes.size() < header_bytes) return std::nullopt;
  const auto kind = load_be<std::uint8_t>(&bytes[0]);
  if (kind < static_cast<std::uint8_t>(Kind::message) ||
      kind > static_cast<std::uint8_t>(Kind::joined)) {
    return std::nullopt;
  }
  const auto flags = load_be<std::uint8_t>(&bytes[1]);
  Frame frame;
  frame.kind = static_cast<Kind>(kind);
  frame.confirm = flags & confirm_flag;
  frame.answer = flags & answer_flag;
  frame.credits = load_be<std::uint16_t>(&bytes[2]);
  frame.delivered = load_be<Count>(&bytes[4]);
  frame.fetched = load_be<Count>(&bytes[8]);
  frame.updates = load_be<Count>(&bytes[12]);
  if (frame.kind == Kind::joined && !parse_parts(bytes, frame.parts)) return std::nullopt;
  if (!has_type(frame.kind)) return frame;
  if (bytes.size() < payload_offset) return std::nullopt;
  frame.type = load_be<std::uint32_t>(&bytes[16]);
  frame.tag = load_be<std::uint64_t>(&bytes[24]);
  if (frame.kind == Kind::offer) {
    if (!parse_pieces(bytes, frame)) return std::nullopt;
  } else {
    frame.bytes = bytes.size() - payload_offset;
  }
  return frame;
}

}  // namespace weft::message::detail
