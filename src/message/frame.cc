#include "message/frame.h"

#include <algorithm>

namespace weft::message::detail {
namespace {

constexpr std::uint8_t confirm_flag = 1;
constexpr std::uint8_t answer_flag = 2;

bool has_type(Kind kind) {
  return kind == Kind::message || kind == Kind::offer;
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

std::size_t Frame::encode(MutableBytes into) const {
  store_be(&into[0], static_cast<std::uint8_t>(kind));
  store_be(&into[1],
           static_cast<std::uint8_t>((confirm ? confirm_flag : 0) | (answer ? answer_flag : 0)));
  store_be(&into[2], credits);
  store_be(&into[4], delivered);
  store_be(&into[8], fetched);
  store_be(&into[12], updates);
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
      kind > static_cast<std::uint8_t>(Kind::close)) {
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
